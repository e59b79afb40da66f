//! How work on `[…, rows, features]` is divided: by sizes only, so that every sum has the same order on every device.

use super::{Args, CudaDevice, Grid, Kernel};
use crate::{Array, DType, Result};
use gradewise_core::Shape;

/// What sums over elements of `dtype` are stored in.
pub(crate) const fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

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

/// A kernel that keeps long rows in registers (gradewise/group.cuh), of those with 1, 2, 4 and 8 packs of 16 bytes to a
/// thread, and its grid: `None` for short rows, longer ones than that, and arrays that are not aligned.
pub(crate) fn long_rows(
    names: [&'static str; 4],
    rows: usize,
    columns: usize,
    arrays: &[&Array],
) -> Option<(Kernel, Grid)> {
    const THREADS: usize = 256;
    let dtype = arrays.first()?.dtype();
    let wide = 16 / dtype.size();
    let packs = columns.div_ceil(THREADS * wide).next_power_of_two();
    let aligned =
        columns.is_multiple_of(wide) && arrays.iter().all(|array| array.cuda_address().is_multiple_of(16));
    let served = aligned && columns >= 2 * THREADS && packs <= 8;
    let name = names[(packs.ilog2() as usize).min(3)];
    served.then(|| (Kernel::new(name, dtype), Grid::blocks(rows.clamp(1, 1 << 16), THREADS as u32)))
}

/// How rows are cut into chunks whose sums are added in a second stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    /// Number of chunks.
    pub count: usize,
    /// Rows of each but the last.
    pub rows: usize,
}

impl Chunks {
    /// For `results` sums over `rows` rows: enough chunks to occupy a large device, each of at least some rows.
    pub fn new(rows: usize, results: usize) -> Self {
        const THREADS: usize = 1 << 18;
        const FEWEST: usize = 8;
        let wanted = (THREADS / results.max(1)).clamp(1, 1024);
        let length = rows.div_ceil(wanted).max(FEWEST);
        Self { count: rows.div_ceil(length).max(1), rows: length }
    }

    /// A grid with threads along the features, `kinds` blocks along y and the chunks along z.
    pub fn grid(&self, features: usize, kinds: usize) -> Grid {
        let threads = features.next_power_of_two().clamp(32, 256);
        Grid::new([features.div_ceil(threads).max(1), kinds, self.count], [threads as u32, 1, 1])
    }

    /// An array for the chunks' sums of `results` results.
    pub fn partials(
        &self,
        operation: &'static str,
        results: usize,
        dtype: DType,
        device: &CudaDevice,
    ) -> Result<Array> {
        Array::for_kernel(operation, [self.count, results], accumulator(dtype), device)
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
    sum_partials_into(device, operation, partials, &out, scale)?;
    Ok(out)
}

/// As [`sum_partials`], into `out`, which is contiguous.
pub(crate) fn sum_partials_into(
    device: &CudaDevice,
    operation: &'static str,
    partials: &Array,
    out: &Array,
    scale: f64,
) -> Result<()> {
    let (chunks, count) = (partials.dims()[0], out.elements());
    if count == 0 {
        return Ok(());
    }
    let grid = Grid::new([count.div_ceil(32).min(1 << 16), 1, 1], [32, 8, 1]);
    let args = Args::new().array(partials).array(out).size(chunks).size(count).double(scale);
    device.launch(operation, Kernel::new("sum_partials", out.dtype()), grid, args)
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    #[test]
    fn chunks_cover_every_row_once() {
        for rows in [0, 1, 7, 8, 9, 1000, 4096, 100_001] {
            for results in [1, 112, 560, 10_240, 1 << 20] {
                let chunks = Chunks::new(rows, results);
                assert!(chunks.count * chunks.rows >= rows, "{rows} {results} {chunks:?}");
                assert!(
                    chunks.count == 1 || (chunks.count - 1) * chunks.rows < rows,
                    "{rows} {results} {chunks:?}"
                );
            }
        }
    }
}
