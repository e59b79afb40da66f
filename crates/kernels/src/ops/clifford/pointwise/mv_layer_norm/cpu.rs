//! mv_layer_norm and cs_layer_norm on the CPU: a·x / (mean over features of ‖x‖ + 1e-6). With CLAMPED, norms are 0.1 at least.

use crate::{
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, accumulate, dispatch, mul_add},
    },
    ops::clifford::{
        algebra::{
            contract::Planes,
            lanewise::tiles,
            layout::{Layout, Lines, load, split_chunks, store, sum_partials},
            program::Programs,
            tile::{NORM_EPS, clamped, clamped_slope, signed_squares, smooth_norm},
        },
        pointwise::rms_norm::dot,
    },
};
use rayon::prelude::*;

/// The quadratic form of the whole multivector.
#[inline(always)]
fn quadratic_form<T: Real, const FMA: bool>(
    tables: &Programs,
    x: &Lines<'_, T>,
    position: usize,
    count: usize,
) -> Lanes<T> {
    signed_squares::<T, FMA>(&tables.metric, |blade| x.load(blade, position, count))
}

/// Replaces the norms of each row by 1/(their mean + eps).
#[inline(always)]
fn invert_mean<T: Real, const FMA: bool>(norms: &mut [T], ones: &[T]) {
    let features = ones.len();
    for row in norms.chunks_exact_mut(features.max(1)) {
        let mean = dot::<T, FMA>(row, ones) / T::narrow(features as f64);
        row.fill(T::one() / (mean + T::narrow(NORM_EPS)));
    }
}

/// Replaces the values of each row by their negative mean.
#[inline(always)]
fn negate_mean<T: Real, const FMA: bool>(values: &mut [T], ones: &[T]) {
    let features = ones.len();
    for row in values.chunks_exact_mut(features.max(1)) {
        let mean = dot::<T, FMA>(row, ones) / T::narrow(features as f64);
        row.fill(-mean);
    }
}

pub(crate) fn forward<T: Real, const CLAMPED: bool>(
    tables: &Programs,
    planes: Planes,
    x: &[T],
    a: &[T],
    out: &mut [T],
) {
    let plan = Plan::<T, CLAMPED>::new(tables, planes, a);
    split_chunks(out, &plan.layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        plan.forward_chunk(Lines::new(x, &plan.layout, chunk), &mut out);
    });
}

/// Data that all chunks share.
pub(crate) struct Plan<'a, T, const CLAMPED: bool> {
    tables: &'a Programs,
    layout: Layout,
    gains: Vec<Lanes<T>>,
}

impl<'a, T: Real, const CLAMPED: bool> Plan<'a, T, CLAMPED> {
    pub fn new(tables: &'a Programs, planes: Planes, a: &[T]) -> Self {
        let layout = Layout::new(tables.blades, planes.rows, planes.features);
        let gains = layout.spread(a, 1);
        Self { tables, layout, gains }
    }

    /// The results of one chunk.
    pub fn forward_chunk(&self, x: Lines<'_, T>, out: &mut [&mut [T]]) {
        let Self { tables, layout, gains } = self;
        dispatch(Forward::<T, CLAMPED> { tables, layout, gains, x, out });
    }

    /// Writes the gradient of `x` in one chunk and returns that of `a`.
    pub fn backward_chunk(&self, x: Lines<'_, T>, grad: Lines<'_, T>, grad_x: &mut [&mut [T]]) -> Vec<T> {
        let Self { tables, layout, gains } = self;
        layout.gather(&dispatch(Backward::<T, CLAMPED> { tables, layout, gains, x, grad, grad_x }), 1)
    }
}

struct Forward<'a, 'b, T, const CLAMPED: bool> {
    tables: &'a Programs,
    layout: &'a Layout,
    gains: &'a [Lanes<T>],
    x: Lines<'a, T>,
    out: &'a mut [&'b mut [T]],
}

impl<T: Real, const CLAMPED: bool> Kernel for Forward<'_, '_, T, CLAMPED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { tables, layout, gains, x, out } = self;
        let len = out.first().map_or(0, |line| line.len());
        // ‖x‖ of every position of the chunk, then 1/(mean + eps).
        let mut scale = vec![T::zero(); len];
        for (_, position, count) in tiles(layout, len) {
            let q = quadratic_form::<T, FMA>(tables, &x, position, count);
            let mut norms = [T::zero(); LANES];
            for lane in 0..LANES {
                norms[lane] = smooth_norm(clamped::<T, CLAMPED>(q[lane]));
            }
            store(&mut scale[position..position + count], &norms);
        }
        let ones = vec![T::one(); layout.features];
        invert_mean::<T, FMA>(&mut scale, &ones);
        for (index, position, count) in tiles(layout, len) {
            let mut factor = load(&scale[position..position + count]);
            for lane in 0..LANES {
                factor[lane] *= gains[index][lane];
            }
            for (blade, line) in out.iter_mut().enumerate() {
                let mut part = x.load(blade, position, count);
                for lane in 0..LANES {
                    part[lane] *= factor[lane];
                }
                store(&mut line[position..position + count], &part);
            }
        }
    }
}

/// Writes the gradient of `x` and returns that of `a`.
pub(crate) fn backward<T: Real, const CLAMPED: bool>(
    tables: &Programs,
    planes: Planes,
    x: &[T],
    a: &[T],
    grad: &[T],
    grad_x: &mut [T],
) -> Vec<T> {
    let plan = Plan::<T, CLAMPED>::new(tables, planes, a);
    let layout = &plan.layout;
    let partials: Vec<Vec<T>> =
        split_chunks(grad_x, layout).into_par_iter().enumerate().flushed_map(|(chunk, mut grad_x)| {
            let (x, grad) = (Lines::new(x, layout, chunk), Lines::new(grad, layout, chunk));
            plan.backward_chunk(x, grad, &mut grad_x)
        });
    sum_partials(partials).unwrap_or_else(|| vec![T::zero(); planes.features])
}

struct Backward<'a, 'b, T, const CLAMPED: bool> {
    tables: &'a Programs,
    layout: &'a Layout,
    gains: &'a [Lanes<T>],
    x: Lines<'a, T>,
    grad: Lines<'a, T>,
    grad_x: &'a mut [&'b mut [T]],
}

impl<T: Real, const CLAMPED: bool> Kernel for Backward<'_, '_, T, CLAMPED> {
    /// Gradient of the gain, spread over a span.
    type Output = Vec<Lanes<T>>;

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) -> Vec<Lanes<T>> {
        let Self { tables, layout, gains, x, grad, grad_x } = self;
        let len = grad_x.first().map_or(0, |line| line.len());
        let mut sums = vec![[T::zero(); LANES]; layout.tiles];
        // Per position: ∂‖x‖/∂q and Σ_blades grad·x; from these, the sums over a row.
        let mut slope = vec![T::zero(); len];
        let mut inverse = vec![T::zero(); len];
        let mut dots = vec![T::zero(); len];
        let mut gained = vec![T::zero(); len];
        for (index, position, count) in tiles(layout, len) {
            let q = quadratic_form::<T, FMA>(tables, &x, position, count);
            let mut dot = [T::zero(); LANES];
            for blade in 0..tables.blades {
                let (x, g) = (x.load(blade, position, count), grad.load(blade, position, count));
                accumulate::<T, FMA>(&mut dot, &g, &x);
            }
            let (mut norms, mut slopes, mut weighted) =
                ([T::zero(); LANES], [T::zero(); LANES], [T::zero(); LANES]);
            for lane in 0..LANES {
                norms[lane] = smooth_norm(clamped::<T, CLAMPED>(q[lane]));
                slopes[lane] = clamped_slope::<T, CLAMPED>(q[lane], norms[lane]);
                weighted[lane] = dot[lane] * gains[index][lane];
            }
            store(&mut inverse[position..position + count], &norms);
            store(&mut slope[position..position + count], &slopes);
            store(&mut dots[position..position + count], &dot);
            store(&mut gained[position..position + count], &weighted);
        }
        let ones = vec![T::one(); layout.features];
        invert_mean::<T, FMA>(&mut inverse, &ones);
        negate_mean::<T, FMA>(&mut gained, &ones);
        for (index, position, count) in tiles(layout, len) {
            let range = position..position + count;
            let inv = load(&inverse[range.clone()]);
            let (mut factor, mut pull) = (load(&gained[range.clone()]), load(&slope[range.clone()]));
            let dot = load(&dots[range]);
            for lane in 0..LANES {
                pull[lane] *= factor[lane] * inv[lane] * inv[lane] * T::narrow(2.0);
                factor[lane] = inv[lane] * gains[index][lane];
                sums[index][lane] = mul_add::<T, FMA>(dot[lane], inv[lane], sums[index][lane]);
            }
            for (blade, line) in grad_x.iter_mut().enumerate() {
                let (x, g) = (x.load(blade, position, count), grad.load(blade, position, count));
                let metric = T::narrow(f64::from(tables.metric[blade]));
                let mut out = [T::zero(); LANES];
                for lane in 0..LANES {
                    out[lane] = mul_add::<T, FMA>(pull[lane] * metric, x[lane], factor[lane] * g[lane]);
                }
                store(&mut line[position..position + count], &out);
            }
        }
        sums
    }
}
