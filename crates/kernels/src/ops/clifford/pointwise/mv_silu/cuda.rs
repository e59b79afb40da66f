//! mv_silu on CUDA.

use super::{Gradients, NAME};
use crate::{
    Array, CudaDevice, Result,
    array::rows::{Chunks, sum_partials},
    ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra},
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
    b: &Array,
) -> Result<Array> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if planes.plane() > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(b)
            .array(&out)
            .pointer(tables.first.address())
            .pointer(tables.metric.address())
            .size(planes.plane())
            .size(planes.features);
        let grid = Grid::linear_by(planes.plane(), tables.grade_count);
        // SAFETY: 1: `check` where the operator is entered compared x, a and b with the planes; all are contiguous. 2: `out` is new. 3:
        // linear, with the grades along y. 4: the device keeps the algebra's tables.
        unsafe { device.launch(NAME, Kernel::new("mv_silu_fwd", x.dtype()), grid, args)? };
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
    b: &Array,
    grad: &Array,
) -> Result<Gradients> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let Planes { rows, features, .. } = planes;
    let (dtype, results) = (x.dtype(), features * tables.grade_count);
    let chunks = Chunks::new(rows, results);
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let [partial_a, partial_b] = [(); 2].map(|()| chunks.partials(NAME, results, dtype, device));
    let (partial_a, partial_b) = (partial_a?, partial_b?);
    if results > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(b)
            .array(grad)
            .array(&out)
            .array(&partial_a)
            .array(&partial_b)
            .pointer(tables.first.address())
            .pointer(tables.metric.address())
            .size(rows)
            .size(features)
            .size(chunks.rows);
        let grid = chunks.grid(features, tables.grade_count);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x; each chunk of rows writes its sums for all features and
        // grades. 2: results and sums are new. 3: the chunks' grid, grades along y. 4: the device keeps the algebra's tables.
        unsafe { device.launch(NAME, Kernel::new("mv_silu_bwd", dtype), grid, args)? };
    }
    let sum = |partial: &Array, like: &Array| sum_partials(device, NAME, partial, like.shape(), dtype, 1.0);
    Ok(Gradients { x: out, a: sum(&partial_a, a)?, b: sum(&partial_b, b)? })
}
