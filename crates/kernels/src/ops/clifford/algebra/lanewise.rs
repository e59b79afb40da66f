//! Driver of operators that treat every (row, feature) position by itself, with parameters `[features, grades]`.

use super::{
    contract::Planes,
    layout::{Layout, Lines, split_chunks, store, sum_partials},
    program::Programs,
    tile::{Tile, with_capacity, zero_tile},
};
use crate::cpu::parallel::Flushed;
use crate::cpu::simd::{Kernel, LANES, Lanes, Real, Simd, dispatch};
use rayon::prelude::*;
use std::marker::PhantomData;

/// An operator on tiles. `params` and `sums` hold a lane group for each parameter and grade, parameter-major.
pub(crate) trait Lanewise<T: Real>: Sync {
    fn forward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        out: &mut Tile<T, BLADES>,
    );

    /// Turns the gradient of the result into that of `x`; adds the gradients of the parameters to `sums`.
    fn backward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        grad: &mut Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    );
}

/// Interleaves parameters `[features, grades]` each into `[features, parameters × grades]`.
pub(crate) fn interleave<T: Real>(params: &[&[T]], features: usize, grades: usize) -> Vec<T> {
    let mut rows = Vec::with_capacity(features * grades * params.len());
    for feature in 0..features {
        for param in params {
            rows.extend_from_slice(&param[feature * grades..][..grades]);
        }
    }
    rows
}

/// Data that all chunks share.
pub(crate) struct Plan<'a, T> {
    tables: &'a Programs,
    pub layout: Layout,
    params: Vec<Lanes<T>>,
    count: usize,
}

impl<'a, T: Real> Plan<'a, T> {
    pub fn new(tables: &'a Programs, planes: Planes, params: &[&[T]]) -> Self {
        let Planes { rows, features, .. } = planes;
        let grades = tables.blades_of_grade.len();
        let layout = Layout::new(tables.blades, rows, features);
        let count = params.len() * grades;
        let params = layout.spread(&interleave(params, features, grades), count);
        Self { tables, layout, params, count }
    }

    /// The gradients of the parameters, each `[features, grades]`, from those of the chunks.
    pub fn fold(&self, partials: Vec<Vec<T>>) -> Vec<Vec<T>> {
        let sums =
            sum_partials(partials).unwrap_or_else(|| vec![T::zero(); self.layout.features * self.count]);
        let grades = self.tables.blades_of_grade.len();
        (0..self.count / grades)
            .map(|param| {
                sums.chunks_exact(self.count.max(1))
                    .flat_map(|row| &row[param * grades..][..grades])
                    .copied()
                    .collect()
            })
            .collect()
    }
}

/// The tiles of a chunk line of `len` elements: (tile within its span, position, length).
///
/// An iterator, not a function that takes a closure: a closure's body would be compiled for the baseline instruction
/// set unless the compiler happens to inline it.
#[inline(always)]
pub(crate) fn tiles(layout: &Layout, len: usize) -> Tiles {
    Tiles { span: layout.rows * layout.features, len, start: 0, index: 0 }
}

pub(crate) struct Tiles {
    span: usize,
    len: usize,
    /// Start of the current span.
    start: usize,
    index: usize,
}

impl Iterator for Tiles {
    type Item = (usize, usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index * LANES >= self.span {
            self.start += self.span.max(1);
            self.index = 0;
        }
        let end = (self.start + self.span).min(self.len);
        let position = self.start + self.index * LANES;
        if position >= end {
            return None;
        }
        let item = (self.index, position, LANES.min(end - position));
        self.index += 1;
        Some(item)
    }
}

struct Forward<'a, 'b, T, O, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    x: Lines<'a, T>,
    out: &'a mut [&'b mut [T]],
    operator: PhantomData<O>,
}

impl<T: Real, O: Lanewise<T>, const BLADES: usize> Kernel for Forward<'_, '_, T, O, BLADES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { plan, x, out, .. } = self;
        let len = out.first().map_or(0, |line| line.len());
        let (mut tile, mut result): (Tile<T, BLADES>, Tile<T, BLADES>) = (zero_tile(), zero_tile());
        for (index, position, count) in tiles(&plan.layout, len) {
            for (blade, lanes) in tile.iter_mut().enumerate().take(plan.tables.blades) {
                *lanes = x.load(blade, position, count);
            }
            let params = &plan.params[index * plan.count..][..plan.count];
            O::forward::<FMA, BLADES>(plan.tables, params, &tile, &mut result);
            for (line, lanes) in out.iter_mut().zip(&result) {
                store(&mut line[position..position + count], lanes);
            }
        }
    }
}

struct Backward<'a, 'b, T, O, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    x: Lines<'a, T>,
    grad: Lines<'a, T>,
    grad_x: &'a mut [&'b mut [T]],
    operator: PhantomData<O>,
}

impl<T: Real, O: Lanewise<T>, const BLADES: usize> Kernel for Backward<'_, '_, T, O, BLADES> {
    /// Gradients of the parameters, spread over a span.
    type Output = Vec<Lanes<T>>;

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) -> Vec<Lanes<T>> {
        let Self { plan, x, grad, grad_x, .. } = self;
        let mut sums = vec![[T::zero(); LANES]; plan.params.len()];
        let len = grad_x.first().map_or(0, |line| line.len());
        let (mut tile, mut g): (Tile<T, BLADES>, Tile<T, BLADES>) = (zero_tile(), zero_tile());
        for (index, position, count) in tiles(&plan.layout, len) {
            for blade in 0..plan.tables.blades {
                tile[blade & (BLADES - 1)] = x.load(blade, position, count);
                g[blade & (BLADES - 1)] = grad.load(blade, position, count);
            }
            let range = index * plan.count..(index + 1) * plan.count;
            let (params, sums) = (&plan.params[range.clone()], &mut sums[range]);
            O::backward::<FMA, BLADES>(plan.tables, params, &tile, &mut g, sums);
            for (line, lanes) in grad_x.iter_mut().zip(&g) {
                store(&mut line[position..position + count], lanes);
            }
        }
        sums
    }
}

/// The results of one chunk.
pub(crate) fn forward_chunk<T: Real, O: Lanewise<T>>(
    plan: &Plan<'_, T>,
    x: Lines<'_, T>,
    out: &mut [&mut [T]],
) {
    with_capacity!(T, plan.tables.blades, CAPACITY => {
        dispatch(Forward::<T, O, CAPACITY> { plan, x, out, operator: PhantomData });
    });
}

/// Writes the gradient of `x` in one chunk and returns those of the parameters for [`Plan::fold`].
pub(crate) fn backward_chunk<T: Real, O: Lanewise<T>>(
    plan: &Plan<'_, T>,
    x: Lines<'_, T>,
    grad: Lines<'_, T>,
    grad_x: &mut [&mut [T]],
) -> Vec<T> {
    let sums = with_capacity!(T, plan.tables.blades, CAPACITY => {
        dispatch(Backward::<T, O, CAPACITY> { plan, x, grad, grad_x, operator: PhantomData })
    });
    plan.layout.gather(&sums, plan.count)
}

pub(crate) fn forward<T: Real, O: Lanewise<T>>(
    tables: &Programs,
    planes: Planes,
    x: &[T],
    params: &[&[T]],
    out: &mut [T],
) {
    let plan = Plan::new(tables, planes, params);
    split_chunks(out, &plan.layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        forward_chunk::<T, O>(&plan, Lines::new(x, &plan.layout, chunk), &mut out);
    });
}

/// Writes the gradient of `x` and returns those of the parameters, each `[features, grades]`.
pub(crate) fn backward<T: Real, O: Lanewise<T>>(
    tables: &Programs,
    planes: Planes,
    x: &[T],
    params: &[&[T]],
    grad: &[T],
    grad_x: &mut [T],
) -> Vec<Vec<T>> {
    let plan = Plan::new(tables, planes, params);
    let partials: Vec<Vec<T>> =
        split_chunks(grad_x, &plan.layout).into_par_iter().enumerate().flushed_map(|(chunk, mut grad_x)| {
            let (x, grad) = (Lines::new(x, &plan.layout, chunk), Lines::new(grad, &plan.layout, chunk));
            backward_chunk::<T, O>(&plan, x, grad, &mut grad_x)
        });
    plan.fold(partials)
}
