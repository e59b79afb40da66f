//! Gates and norms around products, by kernels of any algebra (csrc/clifford).

use super::{contract::Planes, device::DeviceAlgebra, sgp::ProductOptions};
use crate::{
    Array, CudaDevice, Result,
    cuda::{Args, Grid, Kernel},
};

/// x·Φ(x_0).
fn gate(device: &CudaDevice, operation: &'static str, x: &Array) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let plane = x.elements() / x.dims()[0];
        let args = Args::new().array(x).array(&out).size(x.dims()[0]).size(plane);
        device.launch(operation, Kernel::new("gate_fwd", x.dtype()), Grid::linear(plane), args)?;
    }
    Ok(out)
}

/// An operand of a product after its gate, if there is one.
pub(crate) fn gated(
    device: &CudaDevice,
    operation: &'static str,
    options: ProductOptions,
    x: &Array,
) -> Result<Array> {
    if options.gate { gate(device, operation, x) } else { Ok(x.clone()) }
}

/// The gradient of [`gate`]'s input.
pub(crate) fn gate_backward(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    grad: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let plane = x.elements() / x.dims()[0];
        let args = Args::new().array(x).array(grad).array(&out).size(x.dims()[0]).size(plane);
        device.launch(operation, Kernel::new("gate_bwd", x.dtype()), Grid::linear(plane), args)?;
    }
    Ok(out)
}

/// RMS-normalises `x` `[blades, rows, features]` in place and returns 1/rms `[grades, rows]`.
pub(crate) fn rms_norm(
    device: &CudaDevice,
    operation: &'static str,
    algebra: &DeviceAlgebra,
    x: &Array,
) -> Result<Array> {
    let Planes { rows, features, .. } = Planes::of(operation, x)?;
    let dtype = crate::array::rows::accumulator(x.dtype());
    let inverse = Array::for_kernel(operation, [algebra.grade_count, rows], dtype, device)?;
    if x.elements() > 0 {
        let args = Args::new()
            .array(x)
            .array(&inverse)
            .pointer(algebra.first.address())
            .size(algebra.grade_count)
            .size(rows)
            .size(features);
        let grid = crate::array::rows::wide_row_grid(rows, features, x.dtype());
        device.launch(operation, Kernel::new("rms_norm_fwd", x.dtype()), grid, args)?;
    }
    Ok(inverse)
}

/// The gradient of the norm's input.
pub(crate) fn rms_norm_backward(
    device: &CudaDevice,
    operation: &'static str,
    algebra: &DeviceAlgebra,
    output: &Array,
    inverse: &Array,
    grad: &Array,
) -> Result<Array> {
    let Planes { rows, features, .. } = Planes::of(operation, output)?;
    let out = Array::for_kernel(operation, output.shape(), output.dtype(), device)?;
    if out.elements() > 0 {
        let args = Args::new()
            .array(output)
            .array(inverse)
            .array(grad)
            .array(&out)
            .pointer(algebra.first.address())
            .size(algebra.grade_count)
            .size(rows)
            .size(features);
        let grid = crate::array::rows::wide_row_grid(rows, features, output.dtype());
        device.launch(operation, Kernel::new("rms_norm_bwd", output.dtype()), grid, args)?;
    }
    Ok(out)
}
