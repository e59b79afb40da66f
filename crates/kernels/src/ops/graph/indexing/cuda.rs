//! Selection and summation by segment on CUDA.

use crate::{
    Array, CudaDevice, Index, Result,
    array::{index::Resident, strided::divisor},
    runtime::cuda::{
        Args, Grid, Kernel,
        fuse::{Function, Groups},
    },
};
use gradewise_core::Shape;

/// Members per segment, on average, from which a block of threads sums a segment together.
const LONG: usize = 32;

/// `[outer, bound, inner]` → `[outer, index.len(), inner]`, of a contiguous array.
pub(super) fn select(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    inner: usize,
    index: &Index,
    lists: &Resident,
    shape: impl Into<Shape>,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, x.dtype(), device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    // The longest words that divide a row.
    let row = inner * x.dtype().size();
    let fits = |word: &usize| {
        row.is_multiple_of(*word) && [x, &out].iter().all(|array| array.cuda_address() % *word as u64 == 0)
    };
    let word = [16, 8, 4].into_iter().find(fits).unwrap_or(2);
    let words = out.elements() * x.dtype().size() / word;
    let args = Args::new()
        .array(x)
        .pointer(lists.values())
        .array(&out)
        .size(words)
        .value(&divisor(index.len()))
        .value(&divisor(row / word))
        .size(index.bound());
    let kernels = ["index_select_w2", "index_select_w4", "index_select_w8", "index_select_w16"];
    // SAFETY: 1: the operator's entry found `bound` entries along the axis of x, which is contiguous, and all indices are below it; words
    // divide rows and addresses. 2: `out` is new. 3: linear, the kernel strides. 4: the index is borrowed.
    unsafe {
        device.launch_value(operation, Kernel::of_words(kernels, word), Grid::linear(words), args, || {
            let parts = index.rely_on_parts();
            let (index, count, bound) = (lists.values(), index.len(), index.bound());
            out.described(Function::Select { index, parts, count, bound, inner }, &[x])
        })?
    };
    Ok(out)
}

/// `[outer, segments.len(), inner]` → `[outer, segments.bound(), inner]`, of a contiguous array.
pub(super) fn sum(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    inner: usize,
    segments: &Index,
    lists: &Resident,
    shape: impl Into<Shape>,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, x.dtype(), device)?;
    let (elements, bound) = (out.elements(), segments.bound());
    if elements == 0 {
        return Ok(out);
    }
    let [starts, order] = lists.groups();
    let args = Args::new().array(x).pointer(starts).pointer(order).array(&out);
    let (name, grid, args) = if segments.len() / bound < LONG {
        let args = args.size(elements).value(&divisor(bound)).value(&divisor(inner));
        ("segment_sum", Grid::linear(elements), args)
    } else {
        let outer = elements / (bound * inner);
        let blocks = (outer * bound * inner.div_ceil(32)).min(1 << 16);
        let args = args.size(outer).size(bound).size(inner);
        ("segment_sum_long", Grid::new([blocks, 1, 1], [32, 8, 1]), args)
    };
    let (kernel, args) = (Kernel::new(name, x.dtype()), args.size(segments.len()));
    let describe = || {
        // Long segments are summed in another order.
        let (groups, count) = (Groups { starts, order, parts: segments.rely_on_parts() }, segments.len());
        let function = Function::SegmentSum { groups, segments: bound, count, inner };
        (name == "segment_sum").then(|| out.described(function, &[x])).flatten()
    };
    // SAFETY: 1: the operator's entry found an entry of x for each member of a segment; lists and their starts belong to one index. 2:
    // `out` is new. 3: linear, or 32 columns by 8 members for long segments. 4: the index is borrowed.
    unsafe { device.launch_value(operation, kernel, grid, args, describe)? };
    Ok(out)
}
