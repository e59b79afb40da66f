//! The weighted product on the CPU: one pass over memory forward, one backward.
//!
//! A chunk of rows is a parallel task. Within it, each tile is loaded once, gated or normalised in registers,
//! multiplied, and stored; the RMS norm rescales a span while it is still in cache. Backward recomputes the gated or
//! normalised operands instead of storing them.

use super::{Epilogue, Needs, Prologue};
use crate::{
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, dispatch},
    },
    ops::clifford::{
        algebra::{
            lanewise::interleave,
            layout::{Layout, Lines, load, split_chunks, store, sum_partials},
            program::Programs,
            straight::{Products, Role},
            tile::{self, Tile, with_capacity, zero_tile},
        },
        pointwise::rms_norm,
    },
};
use rayon::prelude::*;

/// Operands of a weighted product of shape `[blades, batch, features]`.
pub(crate) struct Operands<'a, T> {
    pub tables: &'a Programs,
    pub batch: usize,
    pub features: usize,
    pub x: &'a [T],
    pub y: &'a [T],
    /// `[features, paths]`
    pub weights: &'a [T],
    pub left: Prologue<'a, T>,
    pub right: Prologue<'a, T>,
    pub epilogue: Epilogue<'a, T>,
}

/// Gradients of the operands; `x` and `y` are written in place, the rest returned.
pub(crate) struct ParameterGradients<T> {
    /// `[features, paths]`
    pub weights: Vec<T>,
    /// `[features, grades]`, empty unless the right operand is normalised.
    pub normalization: Vec<T>,
}

/// Data that all chunks share.
pub(crate) struct Plan<'a, T> {
    operands: &'a Operands<'a, T>,
    pub layout: Layout,
    weights: Vec<Lanes<T>>,
    /// σ(a) and σ(−a) of the right operand's normalisation, spread; empty otherwise.
    s: Vec<Lanes<T>>,
    grades: usize,
}

impl<'a, T: Real> Plan<'a, T> {
    pub fn new(operands: &'a Operands<'a, T>) -> Self {
        let layout = Layout::new(operands.tables.blades, operands.batch, operands.features);
        let weights = layout.spread(operands.weights, operands.tables.paths);
        let grades = operands.tables.blades_of_grade.len();
        let s = match operands.right {
            Prologue::Normalize(a) => {
                let (s, complement) = tile::sigmoids(a);
                layout.spread(&interleave(&[&s, &complement], layout.features, grades), 2 * grades)
            }
            Prologue::None | Prologue::Gate => Vec::new(),
        };
        Self { operands, layout, weights, s, grades }
    }

    /// The sum over chunks of gradients `[features, count]`.
    pub fn fold(&self, partials: Vec<Vec<T>>, count: usize) -> Vec<T> {
        sum_partials(partials).unwrap_or_else(|| vec![T::zero(); self.layout.features * count])
    }

    fn weights_of(&self, tile: usize) -> &[Lanes<T>] {
        &self.weights[tile * self.operands.tables.paths..][..self.operands.tables.paths]
    }

    fn s_of(&self, tile: usize) -> &[Lanes<T>] {
        if self.s.is_empty() { &[] } else { &self.s[tile * 2 * self.grades..][..2 * self.grades] }
    }
}

/// Loads a tile of every blade. Tiles are made once per chunk and reused; their unused capacity is never touched.
#[inline(always)]
fn load_tile<T: Real, const BLADES: usize>(
    tile: &mut Tile<T, BLADES>,
    lines: &Lines<'_, T>,
    blades: usize,
    position: usize,
    len: usize,
) {
    for (blade, lanes) in tile.iter_mut().enumerate().take(blades) {
        *lanes = lines.load(blade, position, len);
    }
}

/// An operand with its prologue applied: itself where there is none, else in `space`. A gate's Φ of the scalar part goes to
/// `cdf`.
#[inline(always)]
fn prepared<'t, T: Real, const FMA: bool, const BLADES: usize>(
    prologue: &Prologue<'_, T>,
    tables: &Programs,
    s: &[Lanes<T>],
    x: &'t Tile<T, BLADES>,
    cdf: &mut Lanes<T>,
    space: &'t mut Tile<T, BLADES>,
) -> &'t Tile<T, BLADES> {
    match prologue {
        Prologue::None => return x,
        Prologue::Gate => {
            *cdf = tile::normal_cdf::<T, FMA>(&x[0]);
            tile::gate::<T, BLADES>(x, cdf, space, tables.blades);
        }
        Prologue::Normalize(_) => tile::normalize::<T, FMA, BLADES, false>(tables, x, s, space),
    }
    space
}

/// `out = epilogue(product(left(x), right(y)))`; `out` has the shape of `x`.
///
/// Returns 1/rms `[grades, batch]` if the epilogue normalises, else nothing.
pub(crate) fn forward<T: Real>(operands: &Operands<'_, T>, out: &mut [T]) -> Vec<T> {
    let plan = Plan::new(operands);
    let parts: Vec<Vec<T>> =
        split_chunks(out, &plan.layout).into_par_iter().enumerate().flushed_map(|(chunk, mut out)| {
            let lines = |data| Lines::new(data, &plan.layout, chunk);
            forward_chunk(&plan, chunk, [lines(operands.x), lines(operands.y)], &mut out)
        });
    rms_norm::join_rows(&parts, plan.grades, operands.batch)
}

/// [`forward`] of one chunk of `x` and `y`.
pub(crate) fn forward_chunk<T: Real>(
    plan: &Plan<'_, T>,
    chunk: usize,
    [x, y]: [Lines<'_, T>; 2],
    out: &mut [&mut [T]],
) -> Vec<T> {
    with_capacity!(T, plan.operands.tables.blades, BLADES => {
        dispatch(Forward::<T, BLADES> { plan, chunk, x, y, out })
    })
}

struct Forward<'a, 'b, T, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    chunk: usize,
    x: Lines<'a, T>,
    y: Lines<'a, T>,
    out: &'a mut [&'b mut [T]],
}

impl<T: Real, const BLADES: usize> Kernel for Forward<'_, '_, T, BLADES> {
    /// 1/rms of the chunk's rows, by grade.
    type Output = Vec<T>;

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, simd: S) -> Vec<T> {
        let Self { plan, chunk, x, y, out, .. } = self;
        let (operands, layout) = (plan.operands, &plan.layout);
        let tables = operands.tables;
        let products = Products::new(simd, tables);
        let len = out.first().map_or(0, |line| line.len());
        let span = layout.rows * layout.features;
        let rows = len / layout.features.max(1);
        let normed = matches!(operands.epilogue, Epilogue::RmsNorm(_));
        let mut inverse_rms = vec![T::zero(); if normed { plan.grades * rows } else { 0 }];
        let (mut raw_x, mut raw_y, mut product) = (zero_tile(), zero_tile(), zero_tile::<T, BLADES>());
        let (mut space_x, mut space_y) = (zero_tile(), zero_tile());
        let mut cdf = [T::zero(); LANES];
        for start in (0..len).step_by(span.max(1)) {
            let span_len = span.min(len - start);
            for (index, offset) in (0..span_len).step_by(LANES).enumerate() {
                let (position, count) = (start + offset, LANES.min(span_len - offset));
                load_tile::<T, BLADES>(&mut raw_x, &x, tables.blades, position, count);
                load_tile::<T, BLADES>(&mut raw_y, &y, tables.blades, position, count);
                let a =
                    prepared::<T, FMA, BLADES>(&operands.left, tables, &[], &raw_x, &mut cdf, &mut space_x);
                let s = plan.s_of(index);
                let b =
                    prepared::<T, FMA, BLADES>(&operands.right, tables, s, &raw_y, &mut cdf, &mut space_y);
                let weights = plan.weights_of(index);
                products.weighted::<FMA, BLADES>(Role::Forward, a, b, weights, &mut product);
                match &operands.epilogue {
                    Epilogue::Residual { base, scale } => {
                        let base = Lines::new(base, layout, chunk);
                        for blade in 0..tables.blades {
                            let mut sum = base.load(blade, position, count);
                            for lane in 0..LANES {
                                sum[lane] = (sum[lane] + product[blade & (BLADES - 1)][lane]) * *scale;
                            }
                            store(&mut out[blade][position..position + count], &sum);
                        }
                    }
                    Epilogue::AddTo { scale } => {
                        for (blade, line) in out.iter_mut().enumerate() {
                            let target = &mut line[position..position + count];
                            let mut sum = load(target);
                            for lane in 0..LANES {
                                sum[lane] = (sum[lane] + product[blade & (BLADES - 1)][lane]) * *scale;
                            }
                            store(target, &sum);
                        }
                    }
                    Epilogue::None | Epilogue::RmsNorm(_) => {
                        for blade in 0..tables.blades {
                            store(
                                &mut out[blade][position..position + count],
                                &product[blade & (BLADES - 1)],
                            );
                        }
                    }
                }
            }
            if normed {
                let features = layout.features;
                for row in start / features..(start + span_len) / features {
                    rms_norm::scale_row::<T, FMA>(tables, out, row, rows, features, &mut inverse_rms);
                }
            }
        }
        inverse_rms
    }
}

/// Gradients of [`forward`] for the cotangent `grad`. `grad_x` and `grad_y` have the shape of `x`, or are empty when
/// `needs` does not ask for them.
pub(crate) fn backward<T: Real>(
    operands: &Operands<'_, T>,
    grad: &[T],
    needs: Needs,
    grad_x: &mut [T],
    grad_y: &mut [T],
) -> ParameterGradients<T> {
    let plan = Plan::new(operands);
    let chunks = plan.layout.chunks();
    let split = |data, wanted: bool| {
        if wanted { split_chunks(data, &plan.layout) } else { (0..chunks).map(|_| Vec::new()).collect() }
    };
    let (grad_x, grad_y) = (split(grad_x, needs.x), split(grad_y, needs.y));
    let (weights, normalization): (Vec<_>, Vec<_>) = grad_x
        .into_par_iter()
        .zip(grad_y)
        .enumerate()
        .flushed_map(|(chunk, (mut grad_x, mut grad_y))| {
            let lines = |data| Lines::new(data, &plan.layout, chunk);
            let operands = [operands.x, operands.y, grad].map(lines);
            backward_chunk(&plan, chunk, operands, grad, needs, &mut grad_x, &mut grad_y)
        })
        .into_iter()
        .unzip();
    ParameterGradients {
        weights: if needs.w { plan.fold(weights, operands.tables.paths) } else { Vec::new() },
        normalization: if plan.s.is_empty() { Vec::new() } else { plan.fold(normalization, plan.grades) },
    }
}

/// [`backward`] of one chunk of `x`, `y` and the cotangent: writes the gradients of the operands and returns those of
/// the weights `[features, paths]` and of the normalisation `[features, grades]`, empty where there is none. `grad` is the whole
/// cotangent, which only an epilogue that normalises reads.
pub(crate) fn backward_chunk<T: Real>(
    plan: &Plan<'_, T>,
    chunk: usize,
    [x, y, g]: [Lines<'_, T>; 3],
    grad: &[T],
    needs: Needs,
    grad_x: &mut [&mut [T]],
    grad_y: &mut [&mut [T]],
) -> (Vec<T>, Vec<T>) {
    let (weights, normalization) = with_capacity!(T, plan.operands.tables.blades, BLADES => {
        dispatch(Backward::<T, BLADES> { plan, chunk, x, y, g, grad, needs, grad_x, grad_y })
    });
    // Here, where chunks run beside each other, and not when they are added up.
    let gather = |spread: Vec<Lanes<T>>, count| match spread.is_empty() {
        true => Vec::new(),
        false => plan.layout.gather(&spread, count),
    };
    (gather(weights, plan.operands.tables.paths), gather(normalization, plan.grades))
}

struct Backward<'a, 'b, 'c, T, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    chunk: usize,
    x: Lines<'a, T>,
    y: Lines<'a, T>,
    g: Lines<'a, T>,
    grad: &'a [T],
    needs: Needs,
    grad_x: &'a mut [&'b mut [T]],
    grad_y: &'a mut [&'c mut [T]],
}

impl<T: Real, const BLADES: usize> Kernel for Backward<'_, '_, '_, T, BLADES> {
    /// Gradients of the weights and of the normalisation, spread over a span.
    type Output = (Vec<Lanes<T>>, Vec<Lanes<T>>);

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, simd: S) -> Self::Output {
        let Self { plan, chunk, x, y, g: grad_lines, grad, needs, grad_x, grad_y, .. } = self;
        let (operands, layout) = (plan.operands, &plan.layout);
        let tables = operands.tables;
        let products = Products::new(simd, tables);
        let rows = layout.chunk.min(layout.batch - chunk * layout.chunk);
        let (len, span) = (rows * layout.features, layout.rows * layout.features);
        let mut sums = Accumulator::new(if needs.w { plan.weights.len() } else { 0 });
        let mut norm_sums = Accumulator::new(plan.s.len() / 2);
        // Gradient of the unnormalised product of one span, by blade.
        let normalized = match &operands.epilogue {
            Epilogue::RmsNorm(Some(normalized)) => Some(normalized),
            Epilogue::RmsNorm(None) | Epilogue::None | Epilogue::Residual { .. } | Epilogue::AddTo { .. } => {
                None
            }
        };
        let stride = layout.padded();
        let mut inner = vec![T::zero(); if normalized.is_some() { tables.blades * stride } else { 0 }];
        let first_row = chunk * layout.chunk;
        let (mut raw_x, mut raw_y, mut g) = (zero_tile(), zero_tile(), zero_tile::<T, BLADES>());
        let (mut space_x, mut space_y, mut out) = (zero_tile(), zero_tile(), zero_tile());
        let (mut cdf_x, mut cdf_y) = ([T::zero(); LANES], [T::zero(); LANES]);

        for start in (0..len).step_by(span.max(1)) {
            let span_len = span.min(len - start);
            if let Some(normalized) = normalized {
                let first = first_row + start / layout.features;
                let rows = first..first + span_len / layout.features;
                rms_norm::rows_gradient::<T, FMA>(tables, normalized, grad, rows, &mut inner, stride);
            }
            for (index, offset) in (0..span_len).step_by(LANES).enumerate() {
                let (position, count) = (start + offset, LANES.min(span_len - offset));
                load_tile::<T, BLADES>(&mut raw_x, &x, tables.blades, position, count);
                load_tile::<T, BLADES>(&mut raw_y, &y, tables.blades, position, count);
                for blade in 0..tables.blades {
                    g[blade & (BLADES - 1)] = if normalized.is_some() {
                        load(&inner[blade * stride + offset..][..count])
                    } else {
                        grad_lines.load(blade, position, count)
                    };
                }
                if let Epilogue::Residual { scale, .. } | Epilogue::AddTo { scale } = operands.epilogue {
                    for part in g.iter_mut().take(tables.blades) {
                        for lane in part {
                            *lane *= scale;
                        }
                    }
                }
                let a =
                    prepared::<T, FMA, BLADES>(&operands.left, tables, &[], &raw_x, &mut cdf_x, &mut space_x);
                let s = plan.s_of(index);
                let b =
                    prepared::<T, FMA, BLADES>(&operands.right, tables, s, &raw_y, &mut cdf_y, &mut space_y);
                let weights = plan.weights_of(index);
                if needs.w {
                    let sums = &mut sums.inner[index * tables.paths..][..tables.paths];
                    products.weight_gradient::<FMA, BLADES>(a, b, &g, sums);
                }
                if needs.x {
                    products.weighted::<FMA, BLADES>(Role::GradLeft, &g, b, weights, &mut out);
                    if let Prologue::Gate = operands.left {
                        tile::gate_gradient::<T, FMA, BLADES>(&raw_x, &cdf_x, &mut out, tables.blades);
                    }
                    for (blade, line) in grad_x.iter_mut().enumerate() {
                        store(&mut line[position..position + count], &out[blade & (BLADES - 1)]);
                    }
                }
                if needs.y || !norm_sums.inner.is_empty() {
                    products.weighted::<FMA, BLADES>(Role::GradRight, &g, a, weights, &mut out);
                    match operands.right {
                        Prologue::None => {}
                        Prologue::Gate => {
                            tile::gate_gradient::<T, FMA, BLADES>(&raw_y, &cdf_y, &mut out, tables.blades);
                        }
                        Prologue::Normalize(_) => tile::normalize_gradient::<T, FMA, BLADES, false>(
                            tables,
                            &raw_y,
                            s,
                            &mut out,
                            &mut norm_sums.inner[index * plan.grades..][..plan.grades],
                        ),
                    }
                    for (blade, line) in grad_y.iter_mut().enumerate() {
                        store(&mut line[position..position + count], &out[blade & (BLADES - 1)]);
                    }
                }
            }
            sums.span_done();
            norm_sums.span_done();
        }
        (sums.finish(), norm_sums.finish())
    }
}

/// Sums over many spans in two levels, so that rounding grows with the square root of the number of spans rather
/// than with the number itself.
struct Accumulator<T> {
    inner: Vec<Lanes<T>>,
    outer: Vec<Lanes<T>>,
    spans: usize,
}

impl<T: Real> Accumulator<T> {
    const FLUSH: usize = 16;

    fn new(len: usize) -> Self {
        Self { inner: vec![[T::zero(); LANES]; len], outer: vec![[T::zero(); LANES]; len], spans: 0 }
    }

    #[inline(always)]
    fn span_done(&mut self) {
        self.spans += 1;
        if self.spans == Self::FLUSH {
            self.flush();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        for (outer, inner) in self.outer.iter_mut().zip(&mut self.inner) {
            for lane in 0..LANES {
                outer[lane] += inner[lane];
                inner[lane] = T::zero();
            }
        }
        self.spans = 0;
    }

    #[inline(always)]
    fn finish(mut self) -> Vec<Lanes<T>> {
        self.flush();
        self.outer
    }
}
