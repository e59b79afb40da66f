//! The convolution on the CPU: blocks of rows are gathered into panels that fit the cache, and multiplied by matrix products.
//!
//! Work is cut by sizes alone, and sums over rows are added in a fixed order, so that results do not depend on the number of threads.

use super::geometry::{Gather, Sizes};
use crate::cpu::{
    gemm::{self, Matrix},
    parallel::Flushed,
    simd::{self, Real, Simd, mul_add},
};
use rayon::prelude::*;

/// Elements of a panel: half a megabyte in `f32`.
const PANEL: usize = 1 << 17;

/// `out` `[target blades, rows, groups · target channels]` of `source` `[source blades, source rows, groups · source channels]` and the
/// kernel that `by_group` lays out.
pub(super) fn gathered<T: Real>(gather: &Gather, source: &[T], w: &[T], out: &mut [T]) {
    let Sizes { groups, taps, .. } = gather.sizes;
    let [blades, channels] = gather.target;
    let (rows, columns) = (gather.rows(), groups * channels);
    if out.is_empty() {
        return;
    }
    if gather.source[0] * gather.source[1] * taps == 0 || gather.source_rows() == 0 {
        out.fill(T::zero());
        return;
    }
    let block = block_rows(gather).min(rows);
    // The rows of a block, blade by blade.
    let mut blocks: Vec<Vec<&mut [T]>> =
        (0..rows.div_ceil(block)).map(|_| Vec::with_capacity(blades)).collect();
    for blade in out.chunks_mut(rows * columns) {
        for (index, part) in blade.chunks_mut(block * columns).enumerate() {
            blocks[index].push(part);
        }
    }
    let depthwise = gather.is_depthwise();
    blocks.into_par_iter().enumerate().flushed_for_each(|(index, mut parts)| {
        let first = index * block;
        if depthwise {
            simd::dispatch(Depthwise { gather, source, w, first, parts: &mut parts });
        } else {
            rows_of(gather, source, w, first, &mut parts);
        }
    });
}

/// Rows of a block: as many as make a panel, a function of the sizes alone.
fn block_rows(gather: &Gather) -> usize {
    let row = gather.sizes.taps * gather.source[1].max(gather.target[0] * gather.target[1]);
    (PANEL / row.max(1)).clamp(32, 1024)
}

/// Gathers the rows from `first` on of one blade and group into `panel` `[rows, taps · channels]`.
fn fill<T: Real>(gather: &Gather, source: &[T], group: usize, first: usize, panel: &mut [T]) {
    let Sizes { groups, taps, .. } = gather.sizes;
    let channels = gather.source[1];
    for (index, row) in panel.chunks_exact_mut(taps * channels).enumerate() {
        gather.each_tap(first + index, |tap, at| {
            let target = &mut row[tap * channels..][..channels];
            match at {
                Some(at) => target.copy_from_slice(&source[(at * groups + group) * channels..][..channels]),
                None => target.fill(T::zero()),
            }
        });
    }
}

/// The rows from `first` on of every target blade.
fn rows_of<T: Real>(gather: &Gather, source: &[T], w: &[T], first: usize, parts: &mut [&mut [T]]) {
    let Sizes { groups, taps, .. } = gather.sizes;
    let ([source_blades, source_channels], [blades, channels]) = (gather.source, gather.target);
    let rows = parts[0].len() / (groups * channels);
    let (depth, columns) = (taps * source_channels, blades * channels);
    let plane = gather.source_rows() * groups * source_channels;
    // A panel that would equal the source is not built: the source is read in place.
    let in_place = groups == 1 && gather.is_pointwise();
    let mut panel = vec![T::zero(); if in_place { 0 } else { rows * depth }];
    let mut sums = vec![T::zero(); rows * columns];
    for group in 0..groups {
        let w = &w[group * columns * source_blades * depth..];
        for blade in 0..source_blades {
            let source = &source[blade * plane..][..plane];
            let a = if in_place {
                &source[first * depth..][..rows * depth]
            } else {
                fill(gather, source, group, first, &mut panel);
                &panel
            };
            let b = Matrix::rows(&w[blade * depth..], source_blades * depth).transposed();
            let sizes = gemm::Sizes { m: rows, k: depth, n: columns };
            gemm::product(sizes, Matrix::rows(a, depth), b, &mut sums, blade > 0);
        }
        for (row, sums) in sums.chunks_exact(columns).enumerate() {
            for (part, sums) in parts.iter_mut().zip(sums.chunks_exact(channels)) {
                part[(row * groups + group) * channels..][..channels].copy_from_slice(sums);
            }
        }
    }
}

/// [`rows_of`] where every group has one channel: the channels are the lanes.
struct Depthwise<'a, 'b, T> {
    gather: &'a Gather,
    source: &'a [T],
    w: &'a [T],
    first: usize,
    parts: &'a mut [&'b mut [T]],
}

impl<T: Real> simd::Kernel for Depthwise<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { gather, source, w, first, parts } = self;
        let Sizes { groups, taps, .. } = gather.sizes;
        let plane = gather.source_rows() * groups;
        let source_blades = gather.source[0];
        for (blade, part) in parts.iter_mut().enumerate() {
            let w = &w[blade * source_blades * taps * groups..];
            for (row, out) in part.chunks_exact_mut(groups).enumerate() {
                out.fill(T::zero());
                gather.each_tap(first + row, |tap, at| {
                    let Some(at) = at else { return };
                    for from in 0..source_blades {
                        let x = &source[from * plane + at * groups..][..groups];
                        let w = &w[(from * taps + tap) * groups..][..groups];
                        for ((out, &x), &w) in out.iter_mut().zip(x).zip(w) {
                            *out = mul_add::<T, FMA>(x, w, *out);
                        }
                    }
                });
            }
        }
    }
}

/// Rows whose partial sums of the kernel's gradient are kept apart: a function of the sizes alone.
fn chunk_rows(rows: usize) -> usize {
    const LEAST: usize = 4096;
    const CHUNKS: usize = 4;
    rows.div_ceil(CHUNKS).max(LEAST)
}

/// `out` `[J, O, I, taps, C/g]` of `x`, gathered for the rows of `y` `[J, rows, O]`.
pub(super) fn kernel<T: Real>(gather: &Gather, x: &[T], y: &[T], out: &mut [T]) {
    let Sizes { groups, taps, i, j, o, .. } = gather.sizes;
    let (c, rows) = (gather.source[1], gather.rows());
    if out.is_empty() {
        return;
    }
    if rows == 0 || gather.source_rows() == 0 {
        out.fill(T::zero());
        return;
    }
    let chunk = chunk_rows(rows);
    let chunks = rows.div_ceil(chunk);
    let tasks: Vec<(usize, usize)> =
        (0..i).flat_map(|blade| (0..chunks).map(move |chunk| (blade, chunk))).collect();
    let depthwise = gather.is_depthwise();
    // The sums over the rows of each chunk, `[J, O, taps · C/g]`.
    let sums: Vec<Vec<T>> = tasks.into_par_iter().flushed_map(|(blade, index)| {
        let range = index * chunk..((index + 1) * chunk).min(rows);
        if depthwise {
            simd::dispatch(DepthwiseKernel { gather, x, y, blade, range })
        } else {
            kernel_of(gather, x, y, blade, range)
        }
    });
    let depth = taps * c;
    out.par_chunks_mut(i * depth).enumerate().flushed_for_each(|(at, out)| {
        for (blade, out) in out.chunks_mut(depth).enumerate() {
            let parts = &sums[blade * chunks..][..chunks];
            out.copy_from_slice(&parts[0][at * depth..][..depth]);
            for part in &parts[1..] {
                out.iter_mut().zip(&part[at * depth..][..depth]).for_each(|(out, &part)| *out += part);
            }
        }
    });
    debug_assert_eq!(out.len(), j * o * i * depth, "one kernel for each pair of blades, in {groups} groups");
}

/// The sums over `range` of the rows, for one blade of x.
fn kernel_of<T: Real>(
    gather: &Gather,
    x: &[T],
    y: &[T],
    blade: usize,
    range: std::ops::Range<usize>,
) -> Vec<T> {
    let Sizes { groups, taps, j, o, .. } = gather.sizes;
    let ([_, c], [_, channels]) = (gather.source, gather.target);
    let (depth, columns, rows) = (taps * c, j * channels, gather.rows());
    let plane = gather.source_rows() * groups * c;
    let x = &x[blade * plane..][..plane];
    let block = block_rows(gather).min(range.len());
    let mut panel = vec![T::zero(); block * depth];
    let mut cotangent = vec![T::zero(); block * columns];
    let mut sums = vec![T::zero(); columns * depth];
    let mut out = vec![T::zero(); j * o * depth];
    for group in 0..groups {
        for first in range.clone().step_by(block) {
            let count = block.min(range.end - first);
            let panel = &mut panel[..count * depth];
            fill(gather, x, group, first, panel);
            for (index, row) in cotangent.chunks_exact_mut(columns).take(count).enumerate() {
                for (blade, part) in row.chunks_exact_mut(channels).enumerate() {
                    let from = ((blade * rows + first + index) * groups + group) * channels;
                    part.copy_from_slice(&y[from..][..channels]);
                }
            }
            let sizes = gemm::Sizes { m: columns, k: count, n: depth };
            let a = Matrix::rows(&cotangent[..count * columns], columns).transposed();
            gemm::product(sizes, a, Matrix::rows(panel, depth), &mut sums, first > range.start);
        }
        for (blade, sums) in sums.chunks_exact(channels * depth).enumerate() {
            out[(blade * groups + group) * channels * depth..][..channels * depth].copy_from_slice(sums);
        }
    }
    out
}

/// [`kernel_of`] where every group has one channel.
struct DepthwiseKernel<'a, T> {
    gather: &'a Gather,
    x: &'a [T],
    y: &'a [T],
    blade: usize,
    range: std::ops::Range<usize>,
}

impl<T: Real> simd::Kernel for DepthwiseKernel<'_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) -> Vec<T> {
        let Self { gather, x, y, blade, range } = self;
        let Sizes { groups, taps, j, .. } = gather.sizes;
        let (plane, rows) = (gather.source_rows() * groups, gather.rows());
        let x = &x[blade * plane..][..plane];
        // Channels innermost while summing, in double precision: covariances are built from these sums.
        let mut sums = vec![0.0f64; j * taps * groups];
        for row in range {
            gather.each_tap(row, |tap, at| {
                let Some(at) = at else { return };
                let x = &x[at * groups..][..groups];
                for to in 0..j {
                    let y = &y[(to * rows + row) * groups..][..groups];
                    let sums = &mut sums[(to * taps + tap) * groups..][..groups];
                    for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
                        *sum += x.widen() * y.widen();
                    }
                }
            });
        }
        let mut out = vec![T::zero(); j * groups * taps];
        for to in 0..j {
            for tap in 0..taps {
                for channel in 0..groups {
                    out[(to * groups + channel) * taps + tap] =
                        T::narrow(sums[(to * taps + tap) * groups + channel]);
                }
            }
        }
        out
    }
}
