//! The weighted product on the CPU: one pass over memory forward, one backward.
//!
//! A chunk of rows is a parallel task. Within it, each tile is loaded once, gated or normalised in registers,
//! multiplied, and stored; the RMS norm rescales a span while it is still in cache. Backward recomputes the gated or
//! normalised operands instead of storing them.

use super::{Epilogue, Needs, Prologue};
use crate::{
    ops::clifford::{
        layout::{Layout, Lines, load, split_chunks, store, sum_partials},
        program::Programs,
        rms_norm,
        tile::{self, Tile, with_capacity, zero_tile},
    },
    parallel::Flushed,
    simd::{Kernel, LANES, Lanes, Real, dispatch},
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

/// What every chunk shares.
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
            Prologue::Normalize(a) => layout.spread(&tile::interpolation(a, grades), 2 * grades),
            Prologue::None | Prologue::Gate => Vec::new(),
        };
        Self { operands, layout, weights, s, grades }
    }

    /// The sum over chunks of gradients that are spread over a span, by feature.
    pub fn fold(&self, partials: &[Vec<Lanes<T>>], count: usize) -> Vec<T> {
        let gathered = partials.iter().map(|partial| self.layout.gather(partial, count)).collect();
        sum_partials(gathered).unwrap_or_else(|| vec![T::zero(); self.layout.features * count])
    }

    fn weights_of(&self, tile: usize) -> &[Lanes<T>] {
        &self.weights[tile * self.operands.tables.paths..][..self.operands.tables.paths]
    }

    fn s_of(&self, tile: usize) -> &[Lanes<T>] {
        if self.s.is_empty() { &[] } else { &self.s[tile * 2 * self.grades..][..2 * self.grades] }
    }
}

/// Loads a tile of every blade. Tiles are made once per chunk and filled again and again: their unused capacity is never
/// touched.
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

/// Φ of the scalar part, if the operand is gated.
#[inline(always)]
fn cdf_of<T: Real, const FMA: bool, const BLADES: usize>(
    prologue: &Prologue<'_, T>,
    x: &Tile<T, BLADES>,
) -> Lanes<T> {
    match prologue {
        Prologue::Gate => tile::normal_cdf::<T, FMA>(&x[0]),
        Prologue::None | Prologue::Normalize(_) => [T::zero(); LANES],
    }
}

#[inline(always)]
fn apply_prologue<T: Real, const FMA: bool, const BLADES: usize>(
    prologue: &Prologue<'_, T>,
    tables: &Programs,
    s: &[Lanes<T>],
    cdf: &Lanes<T>,
    x: &mut Tile<T, BLADES>,
) {
    match prologue {
        Prologue::None => {}
        Prologue::Gate => tile::gate::<T, BLADES>(x, cdf, tables.blades),
        Prologue::Normalize(_) => tile::normalize::<T, FMA, BLADES>(tables, x, s),
    }
}

/// `out = epilogue(product(left(x), right(y)))`; `out` has the shape of `x`.
///
/// Returns 1/rms `[grades, batch]` if the epilogue normalises, else nothing.
pub(crate) fn forward<T: Real>(operands: &Operands<'_, T>, out: &mut [T]) -> Vec<T> {
    let plan = Plan::new(operands);
    let parts: Vec<Vec<T>> =
        split_chunks(out, &plan.layout).into_par_iter().enumerate().flushed_map(|(chunk, mut out)| {
            forward_chunk(&plan, chunk, Lines::new(operands.y, &plan.layout, chunk), &mut out)
        });
    rms_norm::join_rows(&parts, plan.grades, operands.batch)
}

/// [`forward`] of one chunk, with the right operand in `y`.
pub(crate) fn forward_chunk<T: Real>(
    plan: &Plan<'_, T>,
    chunk: usize,
    y: Lines<'_, T>,
    out: &mut [&mut [T]],
) -> Vec<T> {
    with_capacity!(plan.operands.tables.blades, CAPACITY => {
        dispatch(Forward::<T, CAPACITY> { plan, chunk, y, out })
    })
}

struct Forward<'a, 'b, T, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    chunk: usize,
    y: Lines<'a, T>,
    out: &'a mut [&'b mut [T]],
}

impl<T: Real, const BLADES: usize> Kernel for Forward<'_, '_, T, BLADES> {
    /// 1/rms of the chunk's rows, by grade.
    type Output = Vec<T>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Vec<T> {
        let Self { plan, chunk, y, out } = self;
        let (operands, layout) = (plan.operands, &plan.layout);
        let tables = operands.tables;
        let x = Lines::new(operands.x, layout, chunk);
        let len = out.first().map_or(0, |line| line.len());
        let span = layout.rows * layout.features;
        let rows = len / layout.features.max(1);
        let normed = matches!(operands.epilogue, Epilogue::RmsNorm(_));
        let mut inverse_rms = vec![T::zero(); if normed { plan.grades * rows } else { 0 }];
        let (mut a, mut b, mut product) = (zero_tile(), zero_tile(), zero_tile::<T, BLADES>());
        for start in (0..len).step_by(span.max(1)) {
            let span_len = span.min(len - start);
            for (index, offset) in (0..span_len).step_by(LANES).enumerate() {
                let (position, count) = (start + offset, LANES.min(span_len - offset));
                load_tile::<T, BLADES>(&mut a, &x, tables.blades, position, count);
                load_tile::<T, BLADES>(&mut b, &y, tables.blades, position, count);
                let cdf = [
                    cdf_of::<T, FMA, BLADES>(&operands.left, &a),
                    cdf_of::<T, FMA, BLADES>(&operands.right, &b),
                ];
                apply_prologue::<T, FMA, BLADES>(&operands.left, tables, &[], &cdf[0], &mut a);
                apply_prologue::<T, FMA, BLADES>(&operands.right, tables, plan.s_of(index), &cdf[1], &mut b);
                let weights = plan.weights_of(index);
                tile::weighted::<T, FMA, BLADES>(&tables.forward, &a, &b, weights, &mut product);
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
            let y = Lines::new(operands.y, &plan.layout, chunk);
            backward_chunk(&plan, chunk, y, grad, needs, &mut grad_x, &mut grad_y)
        })
        .into_iter()
        .unzip();
    ParameterGradients {
        weights: if needs.w { plan.fold(&weights, operands.tables.paths) } else { Vec::new() },
        normalization: if plan.s.is_empty() { Vec::new() } else { plan.fold(&normalization, plan.grades) },
    }
}

/// [`backward`] of one chunk, with the right operand in `y`: writes the gradients of the operands and returns those of
/// the weights and of the normalisation, spread over a span.
pub(crate) fn backward_chunk<'b, T: Real>(
    plan: &Plan<'_, T>,
    chunk: usize,
    y: Lines<'_, T>,
    grad: &[T],
    needs: Needs,
    grad_x: &mut [&'b mut [T]],
    grad_y: &mut [&'b mut [T]],
) -> (Vec<Lanes<T>>, Vec<Lanes<T>>) {
    with_capacity!(plan.operands.tables.blades, CAPACITY => {
        dispatch(Backward::<T, CAPACITY> { plan, chunk, y, grad, needs, grad_x, grad_y })
    })
}

struct Backward<'a, 'b, T, const BLADES: usize> {
    plan: &'a Plan<'a, T>,
    chunk: usize,
    y: Lines<'a, T>,
    grad: &'a [T],
    needs: Needs,
    grad_x: &'a mut [&'b mut [T]],
    grad_y: &'a mut [&'b mut [T]],
}

impl<T: Real, const BLADES: usize> Kernel for Backward<'_, '_, T, BLADES> {
    /// Gradients of the weights and of the normalisation, spread over a span.
    type Output = (Vec<Lanes<T>>, Vec<Lanes<T>>);

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Self::Output {
        let Self { plan, chunk, y, grad, needs, grad_x, grad_y } = self;
        let (operands, layout) = (plan.operands, &plan.layout);
        let tables = operands.tables;
        let x = Lines::new(operands.x, layout, chunk);
        let grad_lines = Lines::new(grad, layout, chunk);
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
        let (mut a, mut b, mut out) = (zero_tile(), zero_tile(), zero_tile());

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
                let cdf = [
                    cdf_of::<T, FMA, BLADES>(&operands.left, &raw_x),
                    cdf_of::<T, FMA, BLADES>(&operands.right, &raw_y),
                ];
                a[..tables.blades].copy_from_slice(&raw_x[..tables.blades]);
                b[..tables.blades].copy_from_slice(&raw_y[..tables.blades]);
                apply_prologue::<T, FMA, BLADES>(&operands.left, tables, &[], &cdf[0], &mut a);
                apply_prologue::<T, FMA, BLADES>(&operands.right, tables, plan.s_of(index), &cdf[1], &mut b);
                let weights = plan.weights_of(index);
                if needs.w {
                    let sums = &mut sums.inner[index * tables.paths..][..tables.paths];
                    tile::weight_gradient::<T, FMA, BLADES>(&tables.by_path, &a, &b, &g, sums);
                }
                if needs.x {
                    tile::weighted::<T, FMA, BLADES>(&tables.grad_left, &g, &b, weights, &mut out);
                    if let Prologue::Gate = operands.left {
                        tile::gate_gradient::<T, FMA, BLADES>(&raw_x, &cdf[0], &mut out, tables.blades);
                    }
                    for (blade, line) in grad_x.iter_mut().enumerate() {
                        store(&mut line[position..position + count], &out[blade & (BLADES - 1)]);
                    }
                }
                if needs.y || !norm_sums.inner.is_empty() {
                    tile::weighted::<T, FMA, BLADES>(&tables.grad_right, &g, &a, weights, &mut out);
                    match operands.right {
                        Prologue::None => {}
                        Prologue::Gate => {
                            tile::gate_gradient::<T, FMA, BLADES>(&raw_y, &cdf[1], &mut out, tables.blades);
                        }
                        Prologue::Normalize(_) => tile::normalize_gradient::<T, FMA, BLADES>(
                            tables,
                            &raw_y,
                            plan.s_of(index),
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
