//! How work is divided among threads: into chunks whose size depends on the data only, never on the number of threads,
//! so that the order of every sum is the same on every machine.

use crate::parallel::Flushed;
use rayon::prelude::*;

/// Elements per chunk: some tens of microseconds of work.
pub(crate) const CHUNK: usize = 1 << 14;

/// Elements from which waking other threads pays.
pub(crate) const PARALLEL: usize = 1 << 16;

/// Calls `work(start, chunk)` for consecutive chunks of `out` of `size` elements (the last may be shorter).
pub(crate) fn for_chunks<T: Send>(out: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    share(out, size, &work);
}

/// [`for_chunks`], compiled for each element type and not for each kind of work.
fn share<T: Send>(out: &mut [T], size: usize, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let size = size.max(1);
    if out.len() < PARALLEL {
        for (chunk, part) in out.chunks_mut(size).enumerate() {
            work(chunk * size, part);
        }
    } else {
        out.par_chunks_mut(size).enumerate().flushed_for_each(|(chunk, part)| work(chunk * size, part));
    }
}

/// Whole rows per chunk of about [`CHUNK`] elements.
pub(crate) fn rows_per_chunk(row: usize) -> usize {
    (CHUNK / row.max(1)).max(1)
}
