//! Optimiser updates on the CPU.
//!
//! What they store goes through [`flushed`](Real::flushed): weights and moments hold no subnormal numbers.

use super::{Adam, Sgd, WeightDecay};
use crate::cpu::simd::{Kernel, Real, Simd, dispatch};

pub(super) fn adam<T: Real>(constants: &Adam, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
    dispatch(AdamStep { constants, p, g, m, v });
}

struct AdamStep<'a, T> {
    constants: &'a Adam,
    p: &'a mut [T],
    g: &'a [T],
    m: &'a mut [T],
    v: &'a mut [T],
}

impl<T: Real> Kernel for AdamStep<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { constants: c, p, g, m, v } = self;
        // Bias corrections in double precision: 1 − β^t cancels badly in single.
        let t = c.step as f64;
        let step_size = T::narrow(c.lr / (1.0 - c.betas.0.powf(t)));
        let root = T::narrow((1.0 - c.betas.1.powf(t)).sqrt());
        let (b1, b2) = (T::narrow(c.betas.0), T::narrow(c.betas.1));
        let (c1, c2) = (T::narrow(1.0 - c.betas.0), T::narrow(1.0 - c.betas.1));
        let eps = T::narrow(c.eps);
        let (shrink, l2) = match c.decay {
            WeightDecay::L2 => (T::one(), T::narrow(c.weight_decay)),
            WeightDecay::Decoupled => (T::narrow(1.0 - c.lr * c.weight_decay), T::zero()),
        };
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g + l2 * *p;
            *m = (b1 * *m + c1 * g).flushed();
            *v = (b2 * *v + c2 * g * g).flushed();
            *p = (shrink * *p - step_size * *m / (v.sqrt() / root + eps)).flushed();
        }
    }
}

pub(super) fn sgd<T: Real>(constants: &Sgd, p: &mut [T], g: &[T], momentum: &mut [T]) {
    let (lr, mu) = (T::narrow(constants.lr), T::narrow(constants.momentum));
    let decay = T::narrow(constants.weight_decay);
    for ((p, &g), buffer) in p.iter_mut().zip(g).zip(momentum) {
        let g = g + decay * *p;
        *buffer = if constants.step == 1 { g } else { mu * *buffer + g }.flushed();
        *p = (*p - lr * if mu.is_zero() { g } else { *buffer }).flushed();
    }
}

pub(super) fn ema<T: Real>(decay: f64, average: &mut [T], p: &[T]) {
    let (keep, take) = (T::narrow(decay), T::narrow(1.0 - decay));
    for (average, &p) in average.iter_mut().zip(p) {
        *average = (keep * *average + take * p).flushed();
    }
}
