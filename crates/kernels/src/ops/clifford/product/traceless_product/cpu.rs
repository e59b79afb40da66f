//! The symmetric traceless product on the CPU.

use super::{Sizes, components};
use crate::{
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, accumulate, dispatch},
    },
    ops::clifford::algebra::layout::{Layout, load, split_chunks, store},
};
use rayon::prelude::*;

/// Positions per task: the parts of all operands stay in cache.
const BLOCK: usize = 1024;

/// The diagonal of the metric, which is its own inverse, divided by `divisor`.
fn metric<T: Real>(sizes: Sizes, component: usize, divisor: f64) -> T {
    T::narrow(if component < sizes.positive { 1.0 } else { -1.0 } / divisor)
}

/// `out` `[components, plane]` from `u` and `v` `[dimension, plane]`.
pub(super) fn forward<T: Real>(sizes: Sizes, u: &[T], v: &[T], out: &mut [T]) {
    let layout = Layout { chunk: BLOCK, ..Layout::new(components(sizes.dimension), sizes.plane, 1) };
    split_chunks(out, &layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        dispatch(Product { sizes, u, v, start: chunk * BLOCK, out: &mut out });
    });
}

/// `out` `[dimension, plane]`, the gradient of one factor, from the `other` and the gradient of the result.
pub(super) fn backward<T: Real>(sizes: Sizes, other: &[T], grad: &[T], out: &mut [T]) {
    let layout = Layout { chunk: BLOCK, ..Layout::new(sizes.dimension, sizes.plane, 1) };
    split_chunks(out, &layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        dispatch(Gradient { sizes, other, grad, start: chunk * BLOCK, out: &mut out });
    });
}

struct Product<'a, 'b, T> {
    sizes: Sizes,
    u: &'a [T],
    v: &'a [T],
    start: usize,
    out: &'a mut [&'b mut [T]],
}

struct Gradient<'a, 'b, T> {
    sizes: Sizes,
    other: &'a [T],
    grad: &'a [T],
    start: usize,
    out: &'a mut [&'b mut [T]],
}

fn scaled<T: Real>(lanes: &Lanes<T>, scale: T) -> Lanes<T> {
    let mut result = *lanes;
    result.iter_mut().for_each(|lane| *lane *= scale);
    result
}

impl<T: Real> Kernel for Product<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { sizes, u, v, start, out } = self;
        let (n, half) = (sizes.dimension, T::narrow(0.5));
        let len = out.first().map_or(0, |out| out.len());
        for offset in (0..len).step_by(LANES) {
            let count = LANES.min(len - offset);
            let part = |data: &[T], component: usize| {
                load(&data[component * sizes.plane + start + offset..][..count])
            };
            let mut dot = [T::zero(); LANES];
            for k in 0..n {
                accumulate::<T, FMA>(&mut dot, &scaled(&part(u, k), metric(sizes, k, n as f64)), &part(v, k));
            }
            let mut results = out.iter_mut();
            for (i, j) in (0..n).flat_map(|i| (i..n).map(move |j| (i, j))) {
                // The last component follows from the trace and is not stored.
                let Some(out) = results.next() else { break };
                let mut sum = [T::zero(); LANES];
                accumulate::<T, FMA>(&mut sum, &scaled(&part(u, i), half), &part(v, j));
                accumulate::<T, FMA>(&mut sum, &scaled(&part(v, i), half), &part(u, j));
                if i == j {
                    let trace = scaled(&dot, metric::<T>(sizes, i, -1.0));
                    sum.iter_mut().zip(trace).for_each(|(sum, trace)| *sum += trace);
                }
                store(&mut out[offset..offset + count], &sum);
            }
        }
    }
}

impl<T: Real> Kernel for Gradient<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { sizes, other, grad, start, out } = self;
        let (n, half) = (sizes.dimension, T::narrow(0.5));
        // The position of S_ij, i ≤ j, among the components.
        let at = |i: usize, j: usize| i * n - i * (i + 1) / 2 + j;
        let len = out.first().map_or(0, |out| out.len());
        for offset in (0..len).step_by(LANES) {
            let count = LANES.min(len - offset);
            let part = |data: &[T], component: usize| {
                load(&data[component * sizes.plane + start + offset..][..count])
            };
            let mut trace = [T::zero(); LANES];
            for i in 0..n - 1 {
                let share = scaled(&part(grad, at(i, i)), metric(sizes, i, n as f64));
                trace.iter_mut().zip(share).for_each(|(trace, share)| *trace += share);
            }
            for (k, out) in out.iter_mut().enumerate() {
                let mut sum = [T::zero(); LANES];
                for j in (0..n).filter(|&j| j != k) {
                    let slope = scaled(&part(grad, at(k.min(j), k.max(j))), half);
                    accumulate::<T, FMA>(&mut sum, &slope, &part(other, j));
                }
                let own = part(other, k);
                if k + 1 < n {
                    accumulate::<T, FMA>(&mut sum, &part(grad, at(k, k)), &own);
                }
                accumulate::<T, FMA>(&mut sum, &scaled(&trace, metric(sizes, k, -1.0)), &own);
                store(&mut out[offset..offset + count], &sum);
            }
        }
    }
}
