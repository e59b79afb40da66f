//! Cumulative sums on CUDA.

use crate::{
    Array, CudaDevice, Result,
    runtime::cuda::{Args, Grid, Kernel},
};

/// Along the last axis of a contiguous array.
pub(super) fn run(device: &CudaDevice, operation: &'static str, x: &Array, reverse: bool) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    if x.elements() == 0 {
        return Ok(out);
    }
    let columns = x.dims().last().copied().unwrap_or(1);
    let rows = x.elements() / columns;
    let args = Args::new().array(x).array(&out).size(rows).size(columns).int(i32::from(reverse));
    // SAFETY: 1: x is contiguous, rows times columns are its elements, and `out` has its shape. 2: `out` is new. 3: a block of 256 threads
    // for a row; further rows follow by strides.
    unsafe {
        device.launch(
            operation,
            Kernel::new("cumsum", x.dtype()),
            Grid::blocks(rows.min(1 << 16), 256),
            args,
        )?
    };
    Ok(out)
}
