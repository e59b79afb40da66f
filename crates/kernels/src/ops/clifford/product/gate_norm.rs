//! Gates and norms around products, by kernels of any algebra (csrc/clifford).

use super::weighted::ProductOptions;
use crate::ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra};
use crate::{
    Array, CudaDevice, Result,
    runtime::cuda::{Args, Grid, Kernel},
};

/// `x` `[blades, …]` times a function of its scalar part, by the kernel of that name (csrc/clifford/pointwise/gate.cuh).
pub(crate) fn gate(
    device: &CudaDevice,
    operation: &'static str,
    kernel: &'static str,
    x: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let plane = x.elements() / x.dims()[0];
        let args = Args::new().array(x).array(&out).size(x.dims()[0]).size(plane);
        // SAFETY: 1: x is contiguous, as many planes as its first axis has entries; `out` has its shape. 2: `out` is new. 3: linear, a
        // thread for a position of the plane; the kernels stride.
        unsafe { device.launch(operation, Kernel::new(kernel, x.dtype()), Grid::linear(plane), args)? };
    }
    Ok(out)
}

/// An operand of a product after its gate x·Φ(x₀), if there is one.
pub(crate) fn gated(
    device: &CudaDevice,
    operation: &'static str,
    options: ProductOptions,
    x: &Array,
) -> Result<Array> {
    if options.gate { gate(device, operation, "gate_fwd", x) } else { Ok(x.clone()) }
}

/// The gradient of an operand in front of its gate x·Φ(x₀).
pub(crate) fn gate_backward(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    grad: &Array,
) -> Result<Array> {
    gate_gradient(device, operation, "gate_bwd", x, grad)
}

/// The gradient of [`gate`]'s input.
pub(crate) fn gate_gradient(
    device: &CudaDevice,
    operation: &'static str,
    kernel: &'static str,
    x: &Array,
    grad: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let plane = x.elements() / x.dims()[0];
        let args = Args::new().array(x).array(grad).array(&out).size(x.dims()[0]).size(plane);
        // SAFETY: 1: x and its gradient are contiguous and of one shape, which callers have checked, as has `out`. 2: `out` is new. 3:
        // linear, a thread for a position of the plane; the kernels stride.
        unsafe { device.launch(operation, Kernel::new(kernel, x.dtype()), Grid::linear(plane), args)? };
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
    let dtype = x.dtype().accumulator();
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
        // SAFETY: 1: x has blades of this algebra and is contiguous; a norm for each grade and row. 2: x is normalised in place: callers
        // have just made it; the norms are new. 3: a grid of rows, in packs of 16 bytes where rows allow it. 4: the tables are borrowed.
        unsafe { device.launch(operation, Kernel::new("rms_norm_fwd", x.dtype()), grid, args)? };
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
        // SAFETY: 1: output and gradient are contiguous, of one shape with blades of this algebra, and there is a norm for each grade and
        // row, all of which callers have checked. 2: `out` is new. 3: a grid of rows, in packs of 16 bytes where rows allow it. 4: the
        // tables are borrowed.
        unsafe { device.launch(operation, Kernel::new("rms_norm_bwd", output.dtype()), grid, args)? };
    }
    Ok(out)
}
