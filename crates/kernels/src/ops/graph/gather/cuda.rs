//! Elements by position on CUDA.

use super::Layout;
use crate::{
    Array, CudaDevice, Positions, Result,
    array::fill,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Shape;

fn sizes(args: Args<'_>, layout: Layout) -> Args<'_> {
    args.size(layout.outer).size(layout.size).size(layout.count).size(layout.inner)
}

/// Of contiguous arguments.
pub(super) fn gather(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    words: &Array,
    shape: &Shape,
    layout: Layout,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, x.dtype(), device)?;
    if out.elements() > 0 {
        let args = sizes(Args::new().array(x).array(words).array(&out), layout);
        // SAFETY: 1: `layout` compared x with the positions, which are below the size of the axis; both are contiguous. 2: `out` is new. 3:
        // linear, the kernel strides.
        unsafe {
            device.launch(operation, Kernel::new("gather", x.dtype()), Grid::linear(out.elements()), args)?
        };
    }
    Ok(out)
}

/// Of contiguous arguments; sums are in the dtype of x.
pub(super) fn scatter(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    words: &Array,
    layout: Layout,
    positions: &Positions,
    shape: &[usize],
) -> Result<Array> {
    let out = fill::full(device, operation, shape, 0.0, x.dtype())?;
    if x.elements() > 0 && out.elements() > 0 {
        let args = sizes(Args::new().array(x).array(words).array(&out), layout);
        // Without repetition there is nothing to add. Otherwise one thread takes a whole line, so that sums have a fixed order.
        let (kernel, threads) = if positions.are_distinct() {
            ("scatter", x.elements())
        } else {
            ("scatter_add", layout.outer * layout.inner)
        };
        // SAFETY: 1: as in `gather`, with x in the shape of the positions. 2: `out` is new, and threads write different elements: positions
        // are distinct, or a thread has a whole line. 3: linear, the kernels stride.
        unsafe { device.launch(operation, Kernel::new(kernel, x.dtype()), Grid::linear(threads), args)? };
    }
    Ok(out)
}
