//! mv_normalization and cs_grade_norm on CUDA.

use super::{Gradients, Norm};
use crate::{
    Array, CudaDevice, Result,
    array::rows::{Chunks, sum_partials},
    ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra},
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

pub(in crate::ops::clifford) fn forward(
    norm: Norm,
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
) -> Result<Array> {
    let (tables, name) = (DeviceAlgebra::of(device, algebra)?, norm.operation());
    let kernels = norm.kernels();
    let out = Array::for_kernel(name, x.shape(), x.dtype(), device)?;
    if planes.plane() > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(&out)
            .pointer(tables.first.address())
            .pointer(tables.metric.address())
            .size(planes.plane())
            .size(planes.features);
        let grid = Grid::linear_by(planes.plane(), tables.grade_count);
        // SAFETY: 1: `check` where the operator is entered compared x and a with the planes; all are contiguous. 2: `out` is new. 3:
        // linear, with the grades along y. 4: the device keeps the algebra's tables.
        unsafe { device.launch(name, Kernel::new(kernels[0], x.dtype()), grid, args)? };
    }
    Ok(out)
}

pub(in crate::ops::clifford) fn backward(
    norm: Norm,
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
    grad: &Array,
) -> Result<Gradients> {
    let (tables, name) = (DeviceAlgebra::of(device, algebra)?, norm.operation());
    let kernels = norm.kernels();
    let Planes { rows, features, .. } = planes;
    let (dtype, results) = (x.dtype(), features * tables.grade_count);
    let chunks = Chunks::new(rows, results);
    let out = Array::for_kernel(name, x.shape(), dtype, device)?;
    let partial = chunks.partials(name, results, dtype, device)?;
    if results > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(grad)
            .array(&out)
            .array(&partial)
            .pointer(tables.first.address())
            .pointer(tables.metric.address())
            .size(rows)
            .size(features)
            .size(chunks.rows);
        let grid = chunks.grid(features, tables.grade_count);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x; each chunk of rows writes its sums for all features and
        // grades. 2: results and sums are new. 3: the chunks' grid, grades along y. 4: the device keeps the algebra's tables.
        unsafe { device.launch(name, Kernel::new(kernels[1], dtype), grid, args)? };
    }
    Ok(Gradients { x: out, a: sum_partials(device, name, &partial, a.shape(), dtype, 1.0)? })
}
