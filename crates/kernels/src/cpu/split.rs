//! How work is divided among threads: into chunks whose size depends on the data only, never on the number of threads,
//! so that the order of every sum is the same on every machine.

use crate::cpu::parallel::Flushed;
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

/// The array `[planes, …]` in pieces of `size` positions (the last may be shorter): where each begins, and its part of every plane.
pub(crate) fn planes<T>(planes: usize, size: usize, data: &mut [T]) -> Vec<(usize, Vec<&mut [T]>)> {
    let (plane, size) = (data.len() / planes.max(1), size.max(1));
    if plane == 0 {
        return Vec::new();
    }
    let mut rest: Vec<_> = data.chunks_exact_mut(plane).map(|plane| plane.chunks_mut(size)).collect();
    (0..plane.div_ceil(size))
        .map(|number| (number * size, rest.iter_mut().filter_map(Iterator::next).collect()))
        .collect()
}

/// Whole rows per chunk of about [`CHUNK`] elements.
pub(crate) fn rows_per_chunk(row: usize) -> usize {
    (CHUNK / row.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_planes_cover_every_element_once() {
        for (count, plane, size) in [(3, 10, 4), (1, 7, 7), (2, 5, 100), (4, 0, 3), (2, 6, 1)] {
            let mut data: Vec<usize> = (0..count * plane).collect();
            let mut seen = vec![0; data.len()];
            for (start, parts) in planes(count, size, &mut data) {
                assert_eq!(parts.len(), count);
                for (number, part) in parts.into_iter().enumerate() {
                    assert_eq!(part[0], number * plane + start);
                    part.iter().for_each(|&element| seen[element] += 1);
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{count} planes of {plane} in pieces of {size}");
        }
    }
}
