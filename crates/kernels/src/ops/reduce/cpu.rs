//! Reductions on the host.
//!
//! Either neighbouring elements belong to one result: rows are summed in [`LANES`] interleaved accumulators. Or they
//! belong to neighbouring results: blocks of [`BLOCK`] results are accumulated side by side. Both run along memory.

use super::reducer::{Greatest, Reducer, Sum};
use crate::{
    Element,
    array::{
        layout::Walk,
        lazy::{Function, Source},
    },
    cpu::{
        parallel::Flushed,
        simd::{Kernel, Simd, dispatch},
        split,
    },
};
use gradewise_core::PerAxis;
use rayon::prelude::*;
use std::marker::PhantomData;

/// Interleaved accumulators of a row: enough to hide the latency of an addition.
const LANES: usize = 16;

/// Results accumulated side by side.
const BLOCK: usize = 64;

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

/// A reduction whose kept positions are computed some rows at a time, a row being a position along the leading axis.
///
/// The order in which a result is summed is that of the whole [`Task`]. It depends on the length of the last kept axis, which is another
/// one where the leading axis is the only one; but then what a row reduces is inside of its row, and summed [`along_rows`].
pub(super) struct Rows<T, R> {
    kept: (PerAxis, PerAxis),
    reduced: (PerAxis, PerAxis),
    offset: usize,
    scale: f64,
    kind: PhantomData<(T, R)>,
}

impl<T, R> Rows<T, R> {
    pub fn new(kept: (&PerAxis, &PerAxis), reduced: (&PerAxis, &PerAxis), offset: usize, scale: f64) -> Self {
        let own = |(sizes, strides): (&PerAxis, &PerAxis)| (sizes.clone(), strides.clone());
        Self { kept: own(kept), reduced: own(reduced), offset, scale, kind: PhantomData }
    }
}

impl<T: Element, R: Reducer> Function for Rows<T, R> {
    fn compute(&self, sources: &[Source<'_>], first: usize, out: &mut [u8]) {
        let (out, mut sizes): (&mut [T], _) = (bytemuck::cast_slice_mut(out), self.kept.0.clone());
        let row: usize = sizes[1..].iter().product();
        sizes[0] = out.len() / row;
        let start = self.offset + first / row * self.kept.1[0] - sources[0].start;
        let source = &sources[0].elements()[start..];
        let (kept, reduced) = ((&sizes[..], &self.kept.1[..]), (&self.reduced.0[..], &self.reduced.1[..]));
        self::run::<T, R>(&Task { source, kept, reduced, scale: self.scale }, out);
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

    /// The offsets of the rows, or of the part of a row, of one piece, and the number of columns.
    #[inline(always)]
    fn rows(&self, piece: usize) -> (impl Iterator<Item = usize>, usize) {
        let parts = self.columns.div_ceil(self.columns_per_piece);
        let (row, first) = (piece / parts * self.rows_per_piece, piece % parts * self.columns_per_piece);
        let rows = self.rows_per_piece.min(self.rows.len() - row);
        let columns = self.columns_per_piece.min(self.columns - first);
        let skipped = first * self.step;
        (self.rows.offsets(row).take(rows).map(move |[offset]| offset + skipped), columns)
    }
}

fn along_rows<T: Element, R: Reducer>(task: &Task<'_, T>, count: usize, out: &mut [T]) {
    let pieces = Pieces::of(task.reduced, split::CHUNK);
    let kept = Walk { sizes: task.kept.0, strides: [task.kept.1] };
    let parts = pieces.count();
    let large = out.len() * count >= split::PARALLEL;
    if parts > 1 && large {
        // Results of many elements: their pieces are the units of work, combined in order.
        for (out, [start]) in out.iter_mut().zip(kept.offsets(0)) {
            let piece = |index| {
                dispatch(Piece {
                    source: &task.source[start..],
                    pieces: &pieces,
                    index,
                    reducer: PhantomData::<R>,
                })
            };
            let partial: Vec<f64> = (0..parts).into_par_iter().flushed_map(piece);
            *out = T::narrow(partial.into_iter().fold(R::START, R::combine) * task.scale);
        }
        return;
    }
    let per_chunk = split::rows_per_chunk(count);
    let short = match (task.kept, task.reduced) {
        (([_], &[step]), (&[columns], [1])) if columns <= LANES => Some((step, columns)),
        _ => None,
    };
    let reduce = |(chunk, out): (usize, &mut [T])| {
        let first = chunk * per_chunk;
        if let Some((step, columns)) = short {
            let (source, scale) = (&task.source[first * step..], task.scale);
            return dispatch(Short { source, step, columns, scale, out, reducer: PhantomData::<R> });
        }
        dispatch(Results { task, pieces: &pieces, kept: &kept, first, out, reducer: PhantomData::<R> });
    };
    if large {
        out.par_chunks_mut(per_chunk).enumerate().flushed_for_each(reduce);
    } else {
        out.chunks_mut(per_chunk).enumerate().for_each(reduce);
    }
}

/// Results of adjacent elements, at most [`LANES`] for each: in the order of [`row`], without the lanes that no element is in.
struct Short<'a, T, R> {
    source: &'a [T],
    step: usize,
    columns: usize,
    scale: f64,
    out: &'a mut [T],
    reducer: PhantomData<R>,
}

impl<T: Element, R: Reducer> Short<'_, T, R> {
    #[inline(always)]
    fn of<const WIDTH: usize>(self) {
        for (number, out) in self.out.iter_mut().enumerate() {
            let mut lanes = [R::START; WIDTH];
            let start = number * self.step;
            for (lane, value) in lanes.iter_mut().zip(&self.source[start..start + self.columns]) {
                *lane = R::combine(*lane, value.widen());
            }
            let mut width = WIDTH;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    lanes[lane] = R::combine(lanes[lane], lanes[lane + width]);
                }
            }
            *out = T::narrow(R::combine(R::START, lanes[0]) * self.scale);
        }
    }
}

impl<T: Element, R: Reducer> Kernel for Short<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        match self.columns {
            0..=4 => self.of::<4>(),
            5..=8 => self.of::<8>(),
            _ => self.of::<LANES>(),
        }
    }
}

/// One piece of one result.
struct Piece<'a, T, R> {
    source: &'a [T],
    pieces: &'a Pieces<'a>,
    index: usize,
    reducer: PhantomData<R>,
}

impl<T: Element, R: Reducer> Kernel for Piece<'_, T, R> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) -> f64 {
        let (rows, columns) = self.pieces.rows(self.index);
        let mut total = R::START;
        for offset in rows {
            total = R::combine(total, row::<T, R>(&self.source[offset..], self.pieces.step, columns));
        }
        total
    }
}

/// Neighbouring results, from `first` on.
struct Results<'a, T, R> {
    task: &'a Task<'a, T>,
    pieces: &'a Pieces<'a>,
    kept: &'a Walk<'a, 1>,
    first: usize,
    out: &'a mut [T],
    reducer: PhantomData<R>,
}

impl<T: Element, R: Reducer> Kernel for Results<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, simd: S) {
        let parts = self.pieces.count();
        for (out, [start]) in self.out.iter_mut().zip(self.kept.offsets(self.first)) {
            let mut total = R::START;
            for index in 0..parts {
                let (source, reducer) = (&self.task.source[start..], self.reducer);
                let piece = Piece { source, pieces: self.pieces, index, reducer };
                total = R::combine(total, piece.run::<S, FMA>(simd));
            }
            *out = T::narrow(total * self.task.scale);
        }
    }
}

/// The sum of adjacent elements.
#[inline(always)]
pub(crate) fn row_sum<T: Element>(row: &[T]) -> f64 {
    self::row::<T, Sum>(row, 1, row.len())
}

/// The greatest of adjacent elements; NaN if one is.
#[inline(always)]
pub(crate) fn row_max<T: Element>(row: &[T]) -> f64 {
    self::row::<T, Greatest>(row, 1, row.len())
}

#[inline(always)]
fn row<T: Element, R: Reducer>(source: &[T], step: usize, columns: usize) -> f64 {
    let mut lanes = [R::START; LANES];
    if step == 1 {
        let mut blocks = source[..columns].chunks_exact(LANES);
        for block in &mut blocks {
            for (lane, value) in lanes.iter_mut().zip(block) {
                *lane = R::combine(*lane, value.widen());
            }
        }
        for (lane, value) in lanes.iter_mut().zip(blocks.remainder()) {
            *lane = R::combine(*lane, value.widen());
        }
    } else {
        for first in (0..columns).step_by(LANES) {
            for (lane, column) in lanes.iter_mut().zip(first..columns) {
                *lane = R::combine(*lane, source[column * step].widen());
            }
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = R::combine(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

fn side_by_side<T: Element, R: Reducer>(task: &Task<'_, T>, count: usize, out: &mut [T]) {
    let (sizes, strides) = task.kept;
    let (columns, outer) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
    let step = strides.last().copied().unwrap_or(0);
    let kept = Walk { sizes: outer, strides: [strides] };
    // A piece takes whole rows of results, so that about `CHUNK` elements are read.
    let pieces = Pieces::of(task.reduced, (split::CHUNK / columns.min(BLOCK)).max(1));
    let parts = pieces.count();
    // One unit of work is a block of neighbouring results; its partial sums are combined in order.
    let unit = |start: usize, out: &mut [T], parallel: bool| {
        let width = out.len();
        let partial = |index: usize| {
            let source = &task.source[start..];
            dispatch(Block { source, pieces: &pieces, index, step, width, reducer: PhantomData::<R> })
        };
        let mut total = [R::START; BLOCK];
        let mut add = |sums: [f64; BLOCK]| {
            for (total, sum) in total.iter_mut().zip(sums) {
                *total = R::combine(*total, sum);
            }
        };
        if parallel {
            let partials: Vec<[f64; BLOCK]> = (0..parts).into_par_iter().flushed_map(partial);
            partials.into_iter().for_each(&mut add);
        } else {
            (0..parts).map(partial).for_each(&mut add);
        }
        for (out, sum) in out.iter_mut().zip(total) {
            *out = T::narrow(sum * task.scale);
        }
    };
    let rows = |first: usize, out: &mut [T], parallel: bool| {
        for (row, [offset]) in out.chunks_mut(columns).zip(kept.offsets(first)) {
            for (index, part) in row.chunks_mut(BLOCK).enumerate() {
                unit(offset + index * BLOCK * step, part, parallel);
            }
        }
    };
    const ENOUGH: usize = 8;
    let large = out.len() * count >= split::PARALLEL;
    if large && kept.len() >= ENOUGH {
        let per_chunk = split::rows_per_chunk(columns * count);
        let chunks = out.par_chunks_mut(per_chunk * columns).enumerate();
        chunks.flushed_for_each(|(chunk, out)| rows(chunk * per_chunk, out, false));
    } else if large && kept.len() * columns.div_ceil(BLOCK) >= ENOUGH {
        // Few long rows of results: their blocks are the units.
        for (row, [offset]) in out.chunks_mut(columns).zip(kept.offsets(0)) {
            let blocks = row.par_chunks_mut(BLOCK).enumerate();
            blocks.flushed_for_each(|(index, part)| unit(offset + index * BLOCK * step, part, false));
        }
    } else {
        rows(0, out, large && parts > 1);
    }
}

/// One piece of `width` neighbouring results, `step` apart.
struct Block<'a, T, R> {
    source: &'a [T],
    pieces: &'a Pieces<'a>,
    index: usize,
    step: usize,
    width: usize,
    reducer: PhantomData<R>,
}

impl<T: Element, R: Reducer> Kernel for Block<'_, T, R> {
    type Output = [f64; BLOCK];

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) -> [f64; BLOCK] {
        let mut sums = [R::START; BLOCK];
        let (rows, count) = self.pieces.rows(self.index);
        for offset in rows {
            for row in 0..count {
                let source = &self.source[offset + row * self.pieces.step..];
                accumulate::<T, R>(source, self.step, &mut sums[..self.width]);
            }
        }
        sums
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
