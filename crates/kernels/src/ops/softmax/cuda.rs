//! Softmax on CUDA.

use crate::{
    Array, CudaDevice, Result,
    cuda::{Args, Kernel, rows::row_grid},
};

/// Along the last axis of a contiguous array.
pub(super) fn run(device: &CudaDevice, operation: &'static str, x: &Array, logarithm: bool) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if x.elements() == 0 {
        return Ok(out);
    }
    let columns = x.dims().last().copied().unwrap_or(1);
    let rows = x.elements() / columns;
    let args = Args::new().array(x).array(&out).size(rows).size(columns).int(i32::from(logarithm));
    device.launch(operation, Kernel::new("softmax", x.dtype()), row_grid(rows, columns), args)?;
    Ok(out)
}
