//! How work on `[…, rows, features]` is divided: by sizes, and rows by their length only, so that every sum has the same order on every
//! device of one architecture, and a row's result is the same among few rows and many.

use super::Array;
use crate::{
    CudaDevice, DType, Error, Result,
    csrc::{
        held_rows as held_threads,
        partials::{LANES, RESULTS},
        streamed_rows as streams_of,
    },
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Shape;

/// Most rows that a thread adds up in `f32` before the sums of threads and of blocks are added.
pub(crate) const LONGEST: usize = 128;

/// Threads that share a row of `features` elements: a power of two.
fn threads_per_row(features: usize) -> u32 {
    features.next_power_of_two().clamp(8, 256) as u32
}

/// A grid whose threads along x share a row, with as many rows per block as fit (gradewise/group.cuh).
pub(crate) fn row_grid(rows: usize, features: usize) -> Grid {
    const MOST: usize = 1 << 16;
    let along = threads_per_row(features);
    let together = Grid::THREADS / along;
    let blocks = rows.div_ceil(together as usize).clamp(1, MOST);
    Grid::new([blocks, 1, 1], [along, together, 1])
}

/// As [`row_grid`], for kernels that access 16 bytes at a time where rows allow it.
pub(crate) fn wide_row_grid(rows: usize, features: usize, dtype: DType) -> Grid {
    let wide = 16 / dtype.size();
    row_grid(rows, if features.is_multiple_of(wide) { features / wide } else { features })
}

/// A kernel that holds rows in registers (gradewise/group.cuh), of those with 1, 2, 4 and 8 packs of 16 bytes to a thread, and its
/// grid: `None` for very short and very long rows, and for arrays that are not aligned.
pub(crate) fn held_rows(
    names: [&'static str; 4],
    rows: usize,
    columns: usize,
    arrays: &[&Array],
) -> Option<(Kernel, Grid)> {
    let dtype = arrays.first()?.dtype();
    let wide = 16 / dtype.size();
    let (along, packs) = held(columns / wide, dtype.size()).filter(|_| aligned(columns, wide, arrays))?;
    let together = (Grid::THREADS / along).max(1);
    let blocks = rows.div_ceil(together as usize).clamp(1, 1 << 16);
    let kernel = Kernel::new(names[packs.ilog2() as usize], dtype);
    Some((kernel, Grid::new([blocks, 1, 1], [along, together, 1])))
}

/// What a kernel streams through shared memory.
pub(crate) struct Streams {
    /// Arrays whose rows it streams.
    pub arrays: usize,
    /// Bytes that it keeps there besides.
    pub kept: usize,
    /// Packs of 16 bytes of the shortest rows that are worth it.
    pub shortest: usize,
}

impl Streams {
    /// The shortest rows where another kernel holds shorter ones in registers.
    pub const BEYOND_HELD: usize = 65;
    /// The shortest rows where shorter ones are read element by element, in two passes.
    pub const BEYOND_PLAIN: usize = 17;
}

/// A kernel that streams rows through shared memory (gradewise/stream.cuh), of those with 4 and 8 packs of 16 bytes to a thread, and its
/// grid: `None` for short and for very long rows, for arrays that are not aligned, and for devices without asynchronous copies or with too
/// little shared memory.
pub(crate) fn streamed_rows(
    device: &CudaDevice,
    names: [&'static str; 2],
    rows: usize,
    columns: usize,
    streams: &Streams,
    arrays: &[&Array],
) -> Option<(Kernel, Grid)> {
    /// Shared memory that the device takes for each block, and with it the static one of these kernels, at most.
    const RESERVED: usize = 1 << 10;
    const FIXED: usize = RESERVED + (2 << 10);
    /// The kernels count rows in 32 bits.
    const MOST: usize = 1 << 30;
    let (info, dtype) = (device.info(), arrays.first()?.dtype());
    let wide = 16 / dtype.size();
    if dtype == DType::F64 || info.compute_capability.0 < 8 || rows > MOST {
        return None;
    }
    let (along, packs) =
        streamed(columns / wide, streams.shortest).filter(|_| aligned(columns, wide, arrays))?;
    let threads = streams_of::threads(packs) as u32;
    let shared = streams_of::shared(streams.arrays, packs, streams.kept);
    let available = info.max_shared_memory + RESERVED;
    // As many threads as have room for the rows in registers.
    let resident = streams_of::blocks(packs).min(available / (shared + FIXED));
    let together = threads / along;
    let most = info.multiprocessors as usize * resident;
    let blocks = rows.div_ceil(together as usize).clamp(1, most.max(1));
    let kernel = Kernel::new(names[usize::from(packs == 8)], dtype);
    (resident > 0).then(|| (kernel, Grid::new([blocks, 1, 1], [along, together, 1]).shared(shared)))
}

/// Threads that share a row of so many packs as it streams, and packs of each: as few threads as can.
fn streamed(row: usize, shortest: usize) -> Option<(u32, usize)> {
    if row < shortest {
        return None;
    }
    [(32, 4), (64, 4), (128, 4), (128, 8), (256, 8), (512, 8)]
        .into_iter()
        .find(|&(along, packs)| row <= along as usize * packs)
}

/// Whether rows of all these arrays can be accessed in packs.
fn aligned(columns: usize, wide: usize, arrays: &[&Array]) -> bool {
    columns.is_multiple_of(wide) && arrays.iter().all(|array| array.cuda_address().is_multiple_of(16))
}

/// Threads that share a row of so many packs, and packs of each: few threads with up to 32 elements each, so that a multiprocessor has
/// many rows at work, and a warp where that does, which needs no barrier to sum. The longest rows have twice the elements to a thread in
/// 16 bits, and more threads in single precision.
fn held(row: usize, size: usize) -> Option<(u32, usize)> {
    let most = if size == 2 { 4 } else { 8 };
    let packs = |along: u32| row.div_ceil(along as usize).next_power_of_two();
    let few = [32, 64, 128, 256].into_iter().find(|&along| packs(along) <= most);
    let along = few.or_else(|| match size {
        2 => Some(256).filter(|&along| packs(along) <= 8),
        4 => Some(held_threads::threads(size, 4) as u32).filter(|&along| packs(along) <= 4),
        _ => None,
    })?;
    (row >= 16).then(|| (along, packs(along)))
}

/// How rows are cut into chunks whose sums are added in a second stage. Threads of a block share a feature where there are few
/// (csrc/gradewise/chunk.cuh), and each has a sum of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    /// Number of sums for each result.
    pub count: usize,
    /// Rows of each but the last ones.
    pub rows: usize,
    /// Threads of a block that share a feature.
    lanes: usize,
    threads: usize,
}

impl Chunks {
    /// For sums over `rows` rows, of `kinds` kinds for each feature: enough to occupy a large device, each of at least some rows.
    pub fn new(rows: usize, features: usize, kinds: usize) -> Self {
        const THREADS: usize = 1 << 18;
        const FEWEST: usize = 8;
        let wanted = (THREADS / (features * kinds).max(1)).clamp(1, 1024);
        let length = rows.div_ceil(wanted).max(FEWEST);
        let threads = features.next_power_of_two().clamp(128, 256);
        let lanes = (threads / features.max(1)).clamp(1, threads);
        let count = rows.div_ceil(length * lanes).max(1) * lanes;
        Self { count, rows: length, lanes, threads }
    }

    /// A grid with threads along the features, `kinds` blocks along y and the chunks along z.
    pub fn grid(&self, features: usize, kinds: usize) -> Grid {
        let blocks = [features.div_ceil(self.threads).max(1), kinds, self.count / self.lanes];
        Grid::new(blocks, [self.threads as u32, 1, 1])
    }

    /// An array for the chunks' sums of `results` results.
    pub fn partials(
        &self,
        operation: &'static str,
        results: usize,
        dtype: DType,
        device: &CudaDevice,
    ) -> Result<Array> {
        Array::for_kernel(operation, [self.count, results], dtype.accumulator(), device)
    }
}

/// `scale`·Σ over the leading axis of `partials`, in order, in double precision, rounded to `dtype`.
pub(crate) fn sum_partials(
    device: &CudaDevice,
    operation: &'static str,
    partials: &Array,
    shape: impl Into<Shape>,
    dtype: DType,
    scale: f64,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    let chunks = chunks_of(operation, partials, &out)?;
    if let Some(sum) = out.partial_sum(operation, partials, chunks, scale)
        // SAFETY: both were compared above; `out` is new.
        && unsafe { device.sum_later(sum) }?
    {
        return Ok(out);
    }
    sum_partials_into(device, operation, partials, &out, scale)?;
    Ok(out)
}

/// How many partial results there are of each of the results `out`.
fn chunks_of(operation: &'static str, partials: &Array, out: &Array) -> Result<usize> {
    let (chunks, count) = (partials.dims()[0], out.elements());
    let fits = partials.elements() == chunks * count
        && partials.dtype() == out.dtype().accumulator()
        && partials.is_contiguous()
        && out.is_contiguous();
    if !fits {
        let (actual, expected) =
            (partials.shape().to_string(), "[chunks, …] of the results' shape and precision");
        return Err(Error::Argument { operation, argument: "partials", actual, expected });
    }
    Ok(chunks)
}

/// As [`sum_partials`], into `out`, which is contiguous.
pub(crate) fn sum_partials_into(
    device: &CudaDevice,
    operation: &'static str,
    partials: &Array,
    out: &Array,
    scale: f64,
) -> Result<()> {
    let (chunks, count) = (chunks_of(operation, partials, out)?, out.elements());
    if count == 0 {
        return Ok(());
    }
    let blocks = count.div_ceil(RESULTS).min(1 << 16);
    let grid = Grid::new([blocks, 1, 1], [RESULTS as u32, LANES as u32, 1]);
    let args = Args::new().array(partials).array(out).size(chunks).size(count).double(scale);
    // SAFETY: 1: compared above. 2: `out` is what the caller has to write, and not the partial sums. 3: `RESULTS`
    // results by `LANES` threads for each.
    unsafe { device.launch(operation, Kernel::new("sum_partials", out.dtype()), grid, args) }
}

#[cfg(test)]
mod tests {
    use super::{Chunks, Streams, held, streamed};

    #[test]
    fn rows_are_held_by_as_few_threads_as_can() {
        for (row, expected) in [
            (1, None),
            (15, None),
            (16, Some((32, 1))),
            (33, Some((32, 2))),
            (256, Some((32, 8))),
            (257, Some((64, 8))),
            (1024, Some((128, 8))),
            (2048, Some((256, 8))),
            (2049, Some((1024, 4))),
            (4096, Some((1024, 4))),
            (4097, None),
        ] {
            assert_eq!(held(row, 4), expected, "{row}");
            if let Some((along, packs)) = expected {
                assert!(along as usize * packs >= row);
            }
        }
        assert_eq!(
            (held(1024, 2), held(1025, 2), held(2048, 2), held(2049, 2)),
            (Some((256, 4)), Some((256, 8)), Some((256, 8)), None)
        );
        assert_eq!((held(2048, 8), held(2049, 8)), (Some((256, 8)), None));
    }

    #[test]
    fn rows_stream_through_as_few_threads_as_can() {
        for (row, expected) in [
            (64, None),
            (65, Some((32, 4))),
            (128, Some((32, 4))),
            (129, Some((64, 4))),
            (512, Some((128, 4))),
            (513, Some((128, 8))),
            (1025, Some((256, 8))),
            (4096, Some((512, 8))),
            (4097, None),
        ] {
            assert_eq!(streamed(row, Streams::BEYOND_HELD), expected, "{row}");
        }
        assert_eq!([16, 17].map(|row| streamed(row, Streams::BEYOND_PLAIN)), [None, Some((32, 4))]);
    }

    #[test]
    fn chunks_cover_every_row_once() {
        for rows in [0, 1, 7, 8, 9, 1000, 4096, 100_001] {
            for features in [1, 5, 28, 128, 129, 1000] {
                for kinds in [1, 6, 56] {
                    let chunks = Chunks::new(rows, features, kinds);
                    let blocks = chunks.count / chunks.lanes;
                    assert_eq!(chunks.count % chunks.lanes, 0);
                    assert!(chunks.count * chunks.rows >= rows, "{rows} {features} {chunks:?}");
                    let without_last = (blocks - 1) * chunks.lanes * chunks.rows;
                    assert!(blocks == 1 || without_last < rows, "{rows} {features} {chunks:?}");
                    // As many lanes as the kernel finds by itself.
                    let found = if features < chunks.threads { chunks.threads / features } else { 1 };
                    assert_eq!(chunks.lanes, found);
                }
            }
        }
    }
}
