//! Softmax on CUDA.

use crate::{
    Array, CudaDevice, Result,
    array::rows::{Streams, held_rows, row_grid, streamed_rows},
    runtime::cuda::{Args, Kernel},
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
    let streamed = ["softmax_streamed_4", "softmax_streamed_8"];
    let held = ["softmax_held_1", "softmax_held_2", "softmax_held_4", "softmax_held_8"];
    let streams = Streams { arrays: 1, kept: 0, shortest: Streams::BEYOND_HELD };
    let (kernel, grid) = streamed_rows(device, streamed, rows, columns, &streams, &[x, &out])
        .or_else(|| held_rows(held, rows, columns, &[x, &out]))
        .unwrap_or_else(|| (Kernel::new("softmax", x.dtype()), row_grid(rows, columns)));
    // SAFETY: 1: x is contiguous rows of `columns` elements, and `out` has its shape. 2: `out` is new. 3: the grid comes with the kernel
    // from `streamed_rows` or `held_rows`, or is that of rows of any length.
    unsafe { device.launch(operation, kernel, grid, args)? };
    Ok(out)
}
