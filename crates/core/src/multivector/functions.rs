//! cosh √z and sinh √z / √z, of numbers and of the squares of bivectors.

use crate::Real;

/// Functions of z = s + Q with a 4-vector Q whose square is the number σ: each is a number and a multiple of Q.
///
/// z acts as the two numbers λ± = s ± √σ, which are complex if σ < 0, and f(z) = ½ (f(λ₊) + f(λ₋)) + f[λ₊, λ₋] Q with the
/// divided difference f[λ₊, λ₋] = (f(λ₊) − f(λ₋)) / (λ₊ − λ₋). If B is the sum of commuting planes with the squares a and b,
/// s = a + b, Q = 2 B₁B₂ and σ = 4ab, so that λ± = (√a ± √b)².
pub(super) struct Functions<T> {
    /// C(z) = cosh √z as (number, multiple of Q).
    pub(super) cosh: (T, T),
    /// S(z) = sinh √z / √z likewise.
    pub(super) sinhc: (T, T),
}

impl<T: Real> Functions<T> {
    /// Every formula is used where it does not cancel: the one in λ± where they are far apart, the one in a and b where
    /// those are, the power series where all are small.
    pub(super) fn of(s: T, sigma: T) -> Self {
        if sigma == T::zero() {
            return Self {
                cosh: (cosh_root(s), sinhc_root(s) * T::from_f64(0.5)),
                sinhc: (sinhc_root(s), sinhc_root_derivative(s)),
            };
        }
        let [half, two, four] = [0.5, 2.0, 4.0].map(T::from_f64);
        let root = sigma.abs().sqrt();
        if s.abs() + root <= T::one() {
            return Self::series(s, sigma);
        }
        if sigma * four > s * s {
            let (plus, minus) = (s + root, s - root);
            let both = |f: fn(T) -> T| {
                let (high, low) = (f(plus), f(minus));
                ((high + low) * half, (high - low) / (two * root))
            };
            return Self { cosh: both(cosh_root), sinhc: both(sinhc_root) };
        }
        let gap = (s * s - sigma).sqrt();
        let a = (if s < T::zero() { s - gap } else { s + gap }) * half;
        let b = sigma / (four * a);
        let (cosh, sinhc) = ((cosh_root(a), cosh_root(b)), (sinhc_root(a), sinhc_root(b)));
        let (left, right) = (cosh.1 * sinhc.0, cosh.0 * sinhc.1);
        Self {
            cosh: (cosh.0 * cosh.1, half * sinhc.0 * sinhc.1),
            sinhc: ((a * left - b * right) / (a - b), (right - left) / (two * (a - b))),
        }
    }

    /// Σ zᵏ / (2k)! and Σ zᵏ / (2k + 1)!, with zᵏ = x + y Q.
    fn series(s: T, sigma: T) -> Self {
        let (mut cosh, mut sinhc) = ((T::one(), T::zero()), (T::one(), T::zero()));
        let mut power = (T::one(), T::zero());
        let mut factorial = 1.0;
        // |λ| ≤ 1, so that the terms after the twelfth are below 1 / 24!.
        for k in 1..=12 {
            let k = 2.0 * f64::from(k);
            power = (power.0 * s + power.1 * sigma, power.0 + power.1 * s);
            factorial *= k * (k - 1.0);
            let even = T::from_f64(factorial.recip());
            let odd = T::from_f64((factorial * (k + 1.0)).recip());
            cosh = (cosh.0 + power.0 * even, cosh.1 + power.1 * even);
            sinhc = (sinhc.0 + power.0 * odd, sinhc.1 + power.1 * odd);
        }
        Self { cosh, sinhc }
    }
}

/// C(s) = cosh √s, which is cos √−s for s < 0.
pub(super) fn cosh_root<T: Real>(s: T) -> T {
    let root = s.abs().sqrt();
    if s < T::zero() { root.cos() } else { root.cosh() }
}

/// S(s) = sinh √s / √s, which is sin √−s / √−s for s < 0, and 1 at 0.
pub(super) fn sinhc_root<T: Real>(s: T) -> T {
    let root = s.abs().sqrt();
    if root == T::zero() {
        T::one()
    } else if s < T::zero() {
        root.sin() / root
    } else {
        root.sinh() / root
    }
}

/// S′(s) = (C(s) − S(s)) / 2s; near zero, where that cancels, its series Σ k sᵏ⁻¹ / (2k + 1)!.
pub(super) fn sinhc_root_derivative<T: Real>(s: T) -> T {
    if s.abs() > T::one() {
        return (cosh_root(s) - sinhc_root(s)) / (s + s);
    }
    // Ten terms leave 10 / 23! at |s| = 1, far below f64.
    let mut sum = T::zero();
    let (mut power, mut factorial) = (T::one(), 1.0);
    for k in 1..=10 {
        let k = f64::from(k);
        factorial *= 2.0 * k * (2.0 * k + 1.0);
        sum += power * T::from_f64(k / factorial);
        power *= s;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_and_quotient_meet() {
        for s in [-1.0f64, 1.0] {
            let quotient = (cosh_root(s) - sinhc_root(s)) / (2.0 * s);
            assert!((sinhc_root_derivative(s) - quotient).abs() <= 1e-15 * quotient.abs());
        }
    }

    /// Where two formulas meet they agree: at the borders of `of`, coming from either side.
    #[test]
    fn formulas_agree_at_their_borders() {
        let close = |x: &Functions<f64>, y: &Functions<f64>| {
            let pairs = [(x.cosh, y.cosh), (x.sinhc, y.sinhc)];
            pairs.iter().all(|(x, y)| {
                (x.0 - y.0).abs() <= 1e-10 * x.0.abs().max(1.0)
                    && (x.1 - y.1).abs() <= 1e-10 * x.1.abs().max(1.0)
            })
        };
        for s in [-30.0f64, -3.0, -0.7, 0.4, 5.0] {
            for sigma in [0.0, s * s / 4.0, (1.0 - s.abs()).powi(2)] {
                let step = 1e-12 * (1.0 + sigma);
                let (below, above) = (Functions::of(s, sigma - step), Functions::of(s, sigma + step));
                assert!(close(&below, &above), "at s = {s}, σ = {sigma}");
            }
        }
    }

    #[test]
    fn derivative_agrees_with_central_differences() {
        for s in [-30.0f64, -4.0, -0.3, 0.0, 0.2, 2.0, 20.0] {
            let h = 1e-5;
            let slope = (sinhc_root(s + h) - sinhc_root(s - h)) / (2.0 * h);
            assert!((sinhc_root_derivative(s) - slope).abs() <= 1e-9 * slope.abs(), "at {s}");
        }
    }
}
