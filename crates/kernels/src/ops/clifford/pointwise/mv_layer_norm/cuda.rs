//! mv_layer_norm on CUDA.

use super::{Gradients, NAME};
use crate::{
    Array, CudaDevice, Result,
    array::rows::{Chunks, row_grid, sum_partials},
    ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra},
    runtime::cuda::{Args, Kernel},
};
use gradewise_core::Algebra;

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
) -> Result<Array> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(&out)
            .pointer(tables.metric.address())
            .size(planes.blades)
            .size(planes.rows)
            .size(planes.features);
        let kernel = Kernel::new("mv_layer_norm_fwd", x.dtype());
        // SAFETY: 1: `check` where the operator is entered compared x and a with the planes; all are contiguous. 2: `out` is new. 3: a grid
        // of rows. 4: the device keeps the algebra's tables.
        unsafe { device.launch(NAME, kernel, row_grid(planes.rows, planes.features), args)? };
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    a: &Array,
    grad: &Array,
) -> Result<Gradients> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let Planes { blades, rows, features } = planes;
    let dtype = x.dtype();
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let inverse_mean = Array::for_kernel(NAME, [rows], dtype.accumulator(), device)?;
    let chunks = Chunks::new(rows, features, 1);
    let partial = chunks.partials(NAME, features, dtype, device)?;
    if out.elements() > 0 {
        let args = Args::new()
            .array(x)
            .array(a)
            .array(grad)
            .array(&out)
            .array(&inverse_mean)
            .pointer(tables.metric.address())
            .size(blades)
            .size(rows)
            .size(features);
        let kernel = Kernel::new("mv_layer_norm_bwd", dtype);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x, and a mean for each row. 2: both results are new. 3: a grid
        // of rows. 4: the device keeps the algebra's tables.
        unsafe { device.launch(NAME, kernel, row_grid(rows, features), args)? };
    }
    if features > 0 {
        let args = Args::new()
            .array(x)
            .array(grad)
            .array(&inverse_mean)
            .array(&partial)
            .size(blades)
            .size(rows)
            .size(features)
            .size(chunks.rows);
        let grid = chunks.grid(features, 1);
        // SAFETY: 1: as above; each chunk of rows writes its sums for all features. Without rows nothing is read. 2: `partial` is new. 3:
        // the chunks' grid, threads along the features.
        unsafe { device.launch(NAME, Kernel::new("mv_layer_norm_gain", dtype), grid, args)? };
    }
    Ok(Gradients { x: out, a: sum_partials(device, NAME, &partial, a.shape(), dtype, 1.0)? })
}
