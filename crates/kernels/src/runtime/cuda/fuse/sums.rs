//! Sums of partial results, which wait for each other: those of a backward pass are wanted at its end, by the update, and one launch adds
//! up many. Each has the bits that it has alone (csrc/ops/partials.cu).

use super::{CudaDevice, Extent, HAS_OWN_KERNELS, is_recording, with};
use crate::{
    DType, Result,
    csrc::partials::{LANES, MOST, RESULTS},
    runtime::cuda::{Args, Grid, Kernel, memory::Buffer, submit::submit_function},
};
use std::sync::Arc;

/// The most bytes of partial results that are kept for sums that wait. What was written last is still in the second-level cache.
const MOST_BYTES: usize = 16 << 20;

/// A sum over the leading axis of `[chunks, count]` partial results, into all of a new array.
pub(crate) struct PartialSum {
    pub operation: &'static str,
    pub partials: Arc<Buffer>,
    /// Where the partial results begin.
    pub from: u64,
    pub out: Arc<Buffer>,
    pub dtype: DType,
    pub chunks: usize,
    pub count: usize,
    pub scale: f64,
}

/// Sums that wait, in the order in which operators asked for them.
#[derive(Default)]
pub(super) struct PartialSums(Vec<PartialSum>);

impl PartialSums {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of these words points into the memory of a sum, or of what it adds up.
    pub fn is_touched(&self, mut words: impl Iterator<Item = u64>) -> bool {
        let inside = |buffer: &Buffer, word: u64| {
            (buffer.pointer()..buffer.pointer() + buffer.bytes() as u64).contains(&word)
        };
        words.any(|word| self.0.iter().any(|sum| inside(&sum.out, word) || inside(&sum.partials, word)))
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|sum| sum.partials.bytes()).sum()
    }
}

/// One sum, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Item {
    partial: u64,
    out: u64,
    chunks: u64,
    count: u64,
    scale: f64,
    first_block: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Items {
    item: [Item; MOST],
    count: i32,
    pad: i32,
}

/// Lets a sum wait, if this thread captures `device` and records values; otherwise gives it back.
///
/// # Errors
/// From launching those that wait, if they hold too much memory.
///
/// # Safety
/// `partials` holds, from the address `from` on, contiguous results of the precision in which `dtype` is added up. `out` is new, of
/// `count` elements of `dtype`. Both are on `device`.
pub(crate) unsafe fn defer(device: &CudaDevice, sum: PartialSum) -> Result<Option<PartialSum>> {
    let waits = HAS_OWN_KERNELS && is_recording(device);
    let is_capture = || with(device, |recording| recording.extent == Extent::Capture).unwrap_or(false);
    if !(waits && is_capture()) {
        return Ok(Some(sum));
    }
    let is_full = with(device, |recording| {
        recording.sums.0.push(sum);
        recording.sums.bytes() > MOST_BYTES
    });
    if is_full.unwrap_or(false) {
        settle(device)?
    }
    Ok(None)
}

/// Launches the sums that wait, if one of these words points into their memory.
pub(super) fn settle_touched(device: &CudaDevice, words: impl Iterator<Item = u64>) -> Result<()> {
    let touched = with(device, |recording| !recording.sums.is_empty() && recording.sums.is_touched(words));
    if touched.unwrap_or(false) { settle(device) } else { Ok(()) }
}

/// Launches the sums that wait and that something may still read.
pub(super) fn settle(device: &CudaDevice) -> Result<()> {
    let mut sums = with(device, |recording| std::mem::take(&mut recording.sums.0)).unwrap_or_default();
    sums.retain(|sum| Arc::strong_count(&sum.out) > 1);
    for dtype in DType::ALL {
        let alike: Vec<&PartialSum> = sums.iter().filter(|sum| sum.dtype == dtype).collect();
        alike.chunks(MOST).try_for_each(|sums| launch(device, dtype, sums))?;
    }
    Ok(())
}

/// Queues the sums of one dtype.
fn launch(device: &CudaDevice, dtype: DType, sums: &[&PartialSum]) -> Result<()> {
    let Some(first) = sums.first() else { return Ok(()) };
    let operation = if sums.len() == 1 { first.operation } else { "sums of gradients" };
    with(device, |recording| *recording.launched.entry(operation).or_insert(0) += 1);
    let threads = [RESULTS as u32, LANES as u32, 1];
    let mut items = Box::new(Items { item: bytemuck::Zeroable::zeroed(), count: sums.len() as i32, pad: 0 });
    let mut blocks = 0;
    for (item, sum) in items.item.iter_mut().zip(sums) {
        let PartialSum { from, chunks, count, scale, .. } = **sum;
        let first_block = blocks as u32;
        *item = Item {
            partial: from,
            out: sum.out.pointer(),
            chunks: chunks as u64,
            count: count as u64,
            scale,
            first_block,
            pad: 0,
        };
        blocks += count.div_ceil(RESULTS);
    }
    let kernel = Kernel::new("sum_partials_many", dtype);
    let mut grid = Grid::new([blocks, 1, 1], threads);
    grid.0.overlapped = device.overlaps();
    let args = Args::new().large(&*items);
    let function = device.kernels().function(device.context(), operation, kernel, &args.all.sizes())?;
    // SAFETY: 1: who let the sums wait vouched for arrays, dtype and sizes. 2: the results are new arrays, which nothing has read: what
    // touches them has the sums launched first. 3: blocks of `RESULTS` by `LANES` threads, one for `RESULTS` results of each sum. 4: `sums`
    // holds the arrays. 5: every kernel of csrc begins by waiting.
    unsafe { submit_function(device, operation, &function, grid, args) }
}
