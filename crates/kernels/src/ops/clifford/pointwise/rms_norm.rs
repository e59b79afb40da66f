//! RMS norm per batch row and grade: o / √((1/N)·Σ_features Σ_blades-of-grade o² + 1e-6). No learned gain.

use crate::cpu::parallel::Flushed;
use crate::cpu::simd::{Kernel, Real, Simd, dispatch, mul_add};
use crate::ops::clifford::algebra::{
    layout::{Layout, split_chunks},
    program::Programs,
};
use rayon::prelude::*;
use std::ops::Range;

/// Added to the mean square before the root (SPEC).
pub(crate) const EPS: f64 = 1e-6;
/// Independent partial sums, so that a reduction over features vectorises and rounds like a short sum.
const PARTIALS: usize = 16;

/// Σ a·b with [`PARTIALS`] partial sums.
#[inline(always)]
pub(crate) fn dot<T: Real, const FMA: bool>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::zero(); PARTIALS];
    let (a_chunks, a_rest) = a.as_chunks::<PARTIALS>();
    let (b_chunks, b_rest) = b.as_chunks::<PARTIALS>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..PARTIALS {
            sums[lane] = mul_add::<T, FMA>(a[lane], b[lane], sums[lane]);
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] = mul_add::<T, FMA>(a, b, sums[lane]);
    }
    let mut width = PARTIALS;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    sums[0]
}

/// Normalises every row of `lines`, one line per blade, and records 1/rms.
pub(crate) struct ScaleRows<'a, 'b, T> {
    pub tables: &'a Programs,
    pub lines: &'a mut [&'b mut [T]],
    pub features: usize,
    /// `[grades, rows]`
    pub inverse_rms: &'a mut [T],
}

impl<T: Real> Kernel for ScaleRows<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { tables, lines, features, inverse_rms } = self;
        let rows = lines.first().map_or(0, |line| line.len() / features.max(1));
        for row in 0..rows {
            scale_row::<T, FMA>(tables, lines, row, rows, features, inverse_rms);
        }
    }
}

/// Normalises one row of each line and records 1/rms in `inverse_rms` `[grades, rows]`.
#[inline(always)]
pub(crate) fn scale_row<T: Real, const FMA: bool>(
    tables: &Programs,
    lines: &mut [&mut [T]],
    row: usize,
    rows: usize,
    features: usize,
    inverse_rms: &mut [T],
) {
    let range = row * features..(row + 1) * features;
    for (grade, blades) in tables.blades_of_grade.iter().enumerate() {
        let mut squares = T::zero();
        for line in &lines[blades.clone()] {
            let part = &line[range.clone()];
            squares += dot::<T, FMA>(part, part);
        }
        let scale = T::one() / (squares / T::narrow(features as f64) + T::narrow(EPS)).sqrt();
        inverse_rms[grade * rows + row] = scale;
        for line in &mut lines[blades.clone()] {
            for value in &mut line[range.clone()] {
                *value *= scale;
            }
        }
    }
}

/// Joins per-chunk `[grades, rows of the chunk]` into `[grades, batch]`.
pub(crate) fn join_rows<T: Real>(parts: &[Vec<T>], grades: usize, batch: usize) -> Vec<T> {
    let mut joined = Vec::with_capacity(grades * batch);
    for grade in 0..grades {
        for part in parts {
            let rows = part.len() / grades;
            joined.extend_from_slice(&part[grade * rows..][..rows]);
        }
    }
    joined
}

/// Operands of the norm's backward pass, arrays `[blades, batch, features]` and `inverse_rms` `[grades, batch]`.
#[derive(Clone, Copy)]
pub(crate) struct Normalized<'a, T> {
    pub output: &'a [T],
    pub inverse_rms: &'a [T],
    pub batch: usize,
    pub features: usize,
}

/// Gradient of the norm's input for some `rows`. With r = 1/rms and ô = o·r that is r·(grad − ô·D/N), D =
/// Σ grad·ô. Row t of these of a blade goes to `out[blade·stride + t·features..]`.
///
/// Where few elements share a norm, grad − ô·D/N nearly vanishes and ô's rounding would show: there the part of grad
/// along ô, which the norm scales by 1 − ô²/N = eps·r², is separated first.
#[inline(always)]
pub(crate) fn rows_gradient<T: Real, const FMA: bool>(
    tables: &Programs,
    normalized: &Normalized<'_, T>,
    grad: &[T],
    rows: Range<usize>,
    out: &mut [T],
    stride: usize,
) {
    const FEW: usize = 16;
    let features = normalized.features;
    let first = rows.start;
    for row in 0..rows.len() {
        let start = |blade: usize| (blade * normalized.batch + first + row) * features;
        for (grade, blades) in tables.blades_of_grade.iter().enumerate() {
            let scale = normalized.inverse_rms[grade * normalized.batch + first + row];
            let row_of = |data: &'_ [T], blade: usize| -> std::ops::Range<usize> {
                debug_assert!(start(blade) + features <= data.len());
                start(blade)..start(blade) + features
            };
            if blades.len() * features <= FEW {
                let (mut projection, mut squares) = (0.0f64, 0.0f64);
                for blade in blades.clone() {
                    let range = row_of(grad, blade);
                    for (&o, &g) in normalized.output[range.clone()].iter().zip(&grad[range]) {
                        projection += o.widen() * g.widen();
                        squares += o.widen() * o.widen();
                    }
                }
                let along = if squares > 0.0 { projection / squares } else { 0.0 };
                let kept = EPS * scale.widen() * scale.widen();
                for blade in blades.clone() {
                    let range = row_of(grad, blade);
                    let target = &mut out[blade * stride + row * features..][..features];
                    let pairs = normalized.output[range.clone()].iter().zip(&grad[range]);
                    for (target, (&o, &g)) in target.iter_mut().zip(pairs) {
                        let parallel = along * o.widen();
                        *target = T::narrow(scale.widen() * ((g.widen() - parallel) + parallel * kept));
                    }
                }
                continue;
            }
            let mut projection = T::zero();
            for blade in blades.clone() {
                let range = row_of(grad, blade);
                projection += dot::<T, FMA>(&normalized.output[range.clone()], &grad[range]);
            }
            let pull = -scale * projection / T::narrow(features as f64);
            for blade in blades.clone() {
                let range = row_of(grad, blade);
                let (o, g) = (&normalized.output[range.clone()], &grad[range]);
                let target = &mut out[blade * stride + row * features..][..features];
                for ((target, &o), &g) in target.iter_mut().zip(o).zip(g) {
                    *target = mul_add::<T, FMA>(pull, o, scale * g);
                }
            }
        }
    }
}

/// [`rows_gradient`] of a whole array.
pub(crate) fn gradient<T: Real>(tables: &Programs, normalized: &Normalized<'_, T>, grad: &[T]) -> Vec<T> {
    struct Rows<'a, 'b, T> {
        tables: &'a Programs,
        normalized: &'a Normalized<'a, T>,
        grad: &'a [T],
        first: usize,
        lines: &'a mut [&'b mut [T]],
    }
    impl<T: Real> Kernel for Rows<'_, '_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd, const FMA: bool>(self, _: S) {
            let len = self.lines.first().map_or(0, |line| line.len());
            let rows = len / self.normalized.features.max(1);
            let mut scratch = vec![T::zero(); self.lines.len() * len];
            let range = self.first..self.first + rows;
            rows_gradient::<T, FMA>(self.tables, self.normalized, self.grad, range, &mut scratch, len);
            for (line, scratch) in self.lines.iter_mut().zip(scratch.chunks_exact(len.max(1))) {
                line.copy_from_slice(scratch);
            }
        }
    }

    let layout = Layout::new(tables.blades, normalized.batch, normalized.features);
    let mut out = vec![T::zero(); grad.len()];
    split_chunks(&mut out, &layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut lines)| {
        let first = chunk * layout.chunk;
        dispatch(Rows { tables, normalized, grad, first, lines: &mut lines });
    });
    out
}
