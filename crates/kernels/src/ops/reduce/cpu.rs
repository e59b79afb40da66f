//! Reductions on the host.
//!
//! Either neighbouring elements belong to one result: rows are summed in [`LANES`] interleaved accumulators. Or they
//! belong to neighbouring results: blocks of [`BLOCK`] results are accumulated side by side. Both run along memory.

use crate::{
    Element,
    ops::{copy::Walk, split},
};
use rayon::prelude::*;

/// Interleaved accumulators of a row: enough to hide the latency of an addition.
const LANES: usize = 16;

/// Results accumulated side by side.
const BLOCK: usize = 64;

/// How elements are combined. Widening to double precision is exact, so extrema are exact too.
pub(super) trait Reducer: Sync {
    const START: f64;

    fn combine(a: f64, b: f64) -> f64;
}

pub(super) struct Sum;
pub(super) struct Greatest;
pub(super) struct Least;

impl Reducer for Sum {
    const START: f64 = 0.0;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        a + b
    }
}

impl Reducer for Greatest {
    const START: f64 = f64::NEG_INFINITY;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        if a > b || a.is_nan() { a } else { b }
    }
}

impl Reducer for Least {
    const START: f64 = f64::INFINITY;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        if a < b || a.is_nan() { a } else { b }
    }
}

/// One reduction: sizes and strides of the kept and of the reduced axes, each merged.
pub(super) struct Task<'a, T> {
    pub source: &'a [T],
    pub kept: (&'a [usize], &'a [usize]),
    pub reduced: (&'a [usize], &'a [usize]),
    pub scale: f64,
}

pub(super) fn run<T: Element, R: Reducer>(task: &Task<'_, T>, out: &mut [T]) {
    let count: usize = task.reduced.0.iter().product();
    if out.is_empty() {
        return;
    }
    if count == 0 {
        out.fill(T::narrow(R::START * task.scale));
        return;
    }
    let kept_step = task.kept.1.last().copied().unwrap_or(usize::MAX);
    let reduced_step = task.reduced.1.last().copied().unwrap_or(usize::MAX);
    if kept_step < reduced_step || task.reduced.0.is_empty() {
        side_by_side::<T, R>(task, count, out);
    } else {
        along_rows::<T, R>(task, count, out);
    }
}

/// The reduced positions, as rows of `columns` elements `step` apart, cut into pieces.
struct Pieces<'a> {
    rows: Walk<'a, 1>,
    columns: usize,
    step: usize,
    /// Rows per piece; 1 if rows themselves are cut.
    rows_per_piece: usize,
    /// Columns per piece; all if rows are whole.
    columns_per_piece: usize,
}

impl<'a> Pieces<'a> {
    /// Pieces of about `target` elements.
    fn of((sizes, strides): (&'a [usize], &'a [usize]), target: usize) -> Self {
        let (columns, outer) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
        let step = strides.last().copied().unwrap_or(0);
        let rows = Walk { sizes: outer, strides: [strides] };
        let rows_per_piece = (target / columns.max(1)).clamp(1, rows.len().max(1));
        Self { rows, columns, step, rows_per_piece, columns_per_piece: columns.min(target) }
    }

    fn count(&self) -> usize {
        self.rows.len().div_ceil(self.rows_per_piece) * self.columns.div_ceil(self.columns_per_piece)
    }

    /// Calls `visit(offset, columns)` for the rows, or the part of a row, of one piece.
    #[inline(always)]
    fn visit(&self, piece: usize, mut visit: impl FnMut(usize, usize)) {
        let parts = self.columns.div_ceil(self.columns_per_piece);
        let (row, first) = (piece / parts * self.rows_per_piece, piece % parts * self.columns_per_piece);
        let rows = self.rows_per_piece.min(self.rows.len() - row);
        let columns = self.columns_per_piece.min(self.columns - first);
        self.rows.visit(row, rows, |[offset]| visit(offset + first * self.step, columns));
    }
}

fn along_rows<T: Element, R: Reducer>(task: &Task<'_, T>, count: usize, out: &mut [T]) {
    let pieces = Pieces::of(task.reduced, split::CHUNK);
    let kept = Walk { sizes: task.kept.0, strides: [task.kept.1] };
    let arch = pulp::Arch::new();
    let parts = pieces.count();
    if parts > 1 && out.len() * count >= split::PARALLEL {
        let mut starts = Vec::with_capacity(out.len());
        kept.visit(0, out.len(), |[start]| starts.push(start));
        for (out, start) in out.iter_mut().zip(starts) {
            let partial = |index| arch.dispatch(|| piece::<T, R>(task.source, &pieces, start, index));
            let partial: Vec<f64> = (0..parts).into_par_iter().map(partial).collect();
            *out = T::narrow(partial.into_iter().fold(R::START, R::combine) * task.scale);
        }
        return;
    }
    let per_chunk = split::rows_per_chunk(count);
    let reduce = |chunk: usize, out: &mut [T]| {
        arch.dispatch(|| {
            let mut results = out.iter_mut();
            kept.visit(chunk * per_chunk, results.len(), |[start]| {
                let mut total = R::START;
                for index in 0..parts {
                    total = R::combine(total, piece::<T, R>(task.source, &pieces, start, index));
                }
                if let Some(out) = results.next() {
                    *out = T::narrow(total * task.scale);
                }
            });
        });
    };
    if out.len() * count >= split::PARALLEL {
        out.par_chunks_mut(per_chunk).enumerate().for_each(|(chunk, out)| reduce(chunk, out));
    } else {
        out.chunks_mut(per_chunk).enumerate().for_each(|(chunk, out)| reduce(chunk, out));
    }
}

#[inline(always)]
fn piece<T: Element, R: Reducer>(source: &[T], pieces: &Pieces<'_>, start: usize, index: usize) -> f64 {
    let mut total = R::START;
    pieces.visit(index, |offset, columns| {
        total = R::combine(total, row::<T, R>(&source[start + offset..], pieces.step, columns));
    });
    total
}

#[inline(always)]
fn row<T: Element, R: Reducer>(source: &[T], step: usize, columns: usize) -> f64 {
    let mut total = R::START;
    if step == 1 && columns >= LANES {
        let mut lanes = [R::START; LANES];
        let mut blocks = source[..columns].chunks_exact(LANES);
        for block in &mut blocks {
            for (lane, value) in lanes.iter_mut().zip(block) {
                *lane = R::combine(*lane, value.widen());
            }
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] = R::combine(lanes[lane], lanes[lane + width]);
            }
        }
        total = lanes[0];
        for value in blocks.remainder() {
            total = R::combine(total, value.widen());
        }
    } else {
        for column in 0..columns {
            total = R::combine(total, source[column * step].widen());
        }
    }
    total
}

fn side_by_side<T: Element, R: Reducer>(task: &Task<'_, T>, count: usize, out: &mut [T]) {
    let (sizes, strides) = task.kept;
    // `kept_step < reduced_step` makes the kept axes non-empty unless nothing is reduced at all.
    let (columns, outer) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
    let step = strides.last().copied().unwrap_or(0);
    let kept = Walk { sizes: outer, strides: [strides] };
    // A piece takes whole rows of results, so that about `CHUNK` elements are read.
    let pieces = Pieces::of(task.reduced, (split::CHUNK / columns.min(BLOCK)).max(1));
    let parts = pieces.count();
    let arch = pulp::Arch::new();
    let block = |start: usize, piece: usize, sums: &mut [f64; BLOCK], width: usize| {
        arch.dispatch(|| {
            pieces.visit(piece, |offset, rows| {
                for row in 0..rows {
                    let source = &task.source[start + offset + row * pieces.step..];
                    accumulate::<T, R>(source, step, &mut sums[..width]);
                }
            });
        });
    };
    let finish = |sums: &[f64], out: &mut [T]| {
        for (out, &sum) in out.iter_mut().zip(sums) {
            *out = T::narrow(sum * task.scale);
        }
    };
    // One unit of work is a block of neighbouring results; its partial sums are combined in order.
    let unit = |start: usize, out: &mut [T], parallel: bool| {
        let width = out.len();
        let partial = |piece: usize| {
            let mut sums = [R::START; BLOCK];
            block(start, piece, &mut sums, width);
            sums
        };
        let mut total = [R::START; BLOCK];
        let mut add = |sums: [f64; BLOCK]| {
            for (total, sum) in total.iter_mut().zip(sums) {
                *total = R::combine(*total, sum);
            }
        };
        if parallel {
            let partials: Vec<[f64; BLOCK]> = (0..parts).into_par_iter().map(partial).collect();
            partials.into_iter().for_each(&mut add);
        } else {
            (0..parts).map(partial).for_each(&mut add);
        }
        finish(&total[..width], out);
    };
    let large = out.len() * count >= split::PARALLEL;
    let blocks_per_row = columns.div_ceil(BLOCK);
    let units = kept.len() * blocks_per_row;
    let rows = |first: usize, out: &mut [T], parallel: bool| {
        let mut results = out.chunks_mut(columns);
        kept.visit(first, results.len(), |[offset]| {
            if let Some(row) = results.next() {
                for (index, part) in row.chunks_mut(BLOCK).enumerate() {
                    unit(offset + index * BLOCK * step, part, parallel);
                }
            }
        });
    };
    if large && units >= 8 && kept.len() >= 8 {
        let per_chunk = split::rows_per_chunk(columns * count);
        out.par_chunks_mut(per_chunk * columns)
            .enumerate()
            .for_each(|(chunk, out)| rows(chunk * per_chunk, out, false));
    } else if large && units >= 8 {
        // Few long rows of results: their blocks are the units.
        let mut offsets = Vec::with_capacity(kept.len());
        kept.visit(0, kept.len(), |[offset]| offsets.push(offset));
        for (row, offset) in out.chunks_mut(columns).zip(offsets) {
            row.par_chunks_mut(BLOCK)
                .enumerate()
                .for_each(|(index, part)| unit(offset + index * BLOCK * step, part, false));
        }
    } else {
        rows(0, out, large && parts > 1);
    }
}

#[inline(always)]
fn accumulate<T: Element, R: Reducer>(source: &[T], step: usize, sums: &mut [f64]) {
    if step == 1 {
        let width = sums.len();
        for (sum, value) in sums.iter_mut().zip(&source[..width]) {
            *sum = R::combine(*sum, value.widen());
        }
    } else {
        for (column, sum) in sums.iter_mut().enumerate() {
            *sum = R::combine(*sum, source[column * step].widen());
        }
    }
}
