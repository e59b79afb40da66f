//! Newton's method for exp(B) = R.

use super::{Multivector, matrix::Matrix};
use crate::{CliffordAlgebra, Real};
use alloc::{vec, vec::Vec};

/// The error, relative to the translation, beyond which an axis far away is none.
const FAR_AXIS: f64 = 1.0 / 64.0;

/// A bivector, with the distance of its exponential from the rotor that it is to be the logarithm of.
pub(super) struct Refined<A: CliffordAlgebra, T: Real> {
    log: Multivector<A, T>,
    error: T,
    /// The same without null generators.
    metric_error: T,
    /// The error that counts as none.
    exact: T,
    /// The error that counts as rounding noise, in units of its tolerance.
    noise: T,
    /// The largest coefficient of the rotor without null generators.
    scale: T,
}

/// How far exp(B) is from R, in all and without null generators.
fn errors<A: CliffordAlgebra, T: Real>(log: &Multivector<A, T>, rotor: &Multivector<A, T>) -> (T, T) {
    let exponential = log.exp_of_bivector();
    let metric = exponential.without_null_generators().distance_from(&rotor.without_null_generators());
    (exponential.distance_from(rotor), metric)
}

impl<A: CliffordAlgebra, T: Real> Refined<A, T> {
    /// The same with another bivector.
    fn with(&self, log: Multivector<A, T>, rotor: &Multivector<A, T>) -> Self {
        let (error, metric_error) = errors(&log, rotor);
        Self { log, error, metric_error, exact: self.exact, noise: self.noise, scale: self.scale }
    }

    /// What refinement makes of `log`, unless it is not finite: the best, and before it what does not leave the planes of `log` for
    /// an axis far away.
    pub(super) fn all_of(log: Multivector<A, T>, rotor: &Multivector<A, T>) -> Vec<Self> {
        let Some(mut best) = Self::measured(log, rotor) else { return Vec::new() };
        best.polish(rotor);
        // Where logarithms form a family, its directions are left alone.
        if !best.is_good() {
            best.refine(rotor, T::epsilon().sqrt());
        }
        if best.is_good() {
            return vec![best];
        }
        // Where R is close to a full turn, directions that exp hardly depends on have to be corrected, too.
        let mut far = best.with(best.log.clone(), rotor);
        far.refine(rotor, T::epsilon() * T::from_f64(32.0));
        vec![best, far]
    }

    /// `log` as it is, unless it is not finite.
    fn measured(log: Multivector<A, T>, rotor: &Multivector<A, T>) -> Option<Self> {
        // Rounding errors of exp, and of R itself.
        let ulps = if log.algebra().signature().dimension() > 5 { 256.0 } else { 32.0 };
        let exact = T::epsilon() * T::from_f64(ulps) + rotor.distance_from_rotors();
        let (error, metric_error) = errors(&log, rotor);
        // Where boosts make coefficients large, all of those of a logarithm are found from small differences of them.
        let scale = rotor.sizes()[0];
        let noise = (scale * T::from_f64(1.0 / 64.0)).max(T::one());
        let measured = Self { log, error, metric_error, exact, noise, scale };
        measured.error.is_finite().then_some(measured)
    }

    pub(super) fn into_log(self) -> Multivector<A, T> {
        self.log
    }

    /// Whether the exponential is R up to the rounding errors of exp and of R.
    pub(super) fn is_exact(&self) -> bool {
        self.error <= self.exact
    }

    /// Whether the exponential is R up to rounding.
    ///
    /// Parts with null generators may be off by the last digits of those of the bivector: close to a full turn with a
    /// translation across, the axis is far away, and no bivector with coefficients of this precision comes closer. An angle of δ
    /// short of a full turn then costs a few ε / δ of the translation. Rotors with δ below 2¹² ε are as good as full turns, so that more
    /// than a few times 2⁻¹² is the error of something else.
    pub(super) fn is_good(&self) -> bool {
        let far = (self.log.size() * T::from_f64(1.0 / 64.0)).max(self.noise);
        self.metric_error.is_negligible(&self.noise)
            && self.error.is_negligible(&far)
            && self.error < T::from_f64(FAR_AXIS)
    }

    /// Whether the exponential is R up to rounding of its squares, as much as is left where planes are nearly null: exp(B) then changes with
    /// the last digits of B by more than those of R.
    pub(super) fn is_fair(&self) -> bool {
        self.error.is_negligible(&self.scale.max(T::one()).powi(2)) && self.error < T::from_f64(FAR_AXIS)
    }

    /// Whether it is rounding alone that keeps the exponential from R. Where R has no logarithm, bivectors stay far from one.
    pub(super) fn is_rounded(&self) -> bool {
        self.error <= T::epsilon().sqrt() * self.scale.max(T::one()).powi(2)
    }

    /// Whether no coefficient is large. A bivector with large ones is far from its fractions: the axis of a screw far away, of a
    /// rotor for which there may be an axis at hand.
    pub(super) fn is_near(&self) -> bool {
        self.log.size() <= T::from_f64(1e3)
    }

    pub(super) fn is_better_than(&self, other: &Self) -> bool {
        match (self.is_good(), other.is_good()) {
            (true, true) => self.log.size() * T::from_f64(8.0) < other.log.size(),
            // A plane at hand, if it is so close that the axis far away leaves more undetermined.
            (false, true) => self.error * T::from_f64(16.0) < other.error,
            (true, false) => other.error * T::from_f64(16.0) >= self.error,
            (false, false) => self.error < other.error,
        }
    }

    /// B ← B + ⟨exp(−B) (R − exp(B))⟩₂, which is exact where B commutes with the rest: cheap, and mostly enough.
    fn polish(&mut self, rotor: &Multivector<A, T>) {
        for _ in 0..8 {
            if self.error.is_zero() {
                return;
            }
            let rest = self.rest(rotor);
            let next = self.with(self.log.sum(&rest), rotor);
            // Never NaN, which counts as infinite.
            if next.error >= self.error {
                return;
            }
            *self = next;
        }
    }

    /// The bivector part of exp(−B) R − 1.
    fn rest(&self, rotor: &Multivector<A, T>) -> Multivector<A, T> {
        let exponential = self.log.exp_of_bivector();
        exponential.reverse().times(&rotor.difference(&exponential)).grade(2)
    }

    /// Newton's method with the derivative of exp, exp(B + X) = exp(B) exp(φ(ad B) X) with φ(a) = (1 − exp(−a)) / a to first
    /// order; steps that make it worse are shortened.
    fn refine(&mut self, rotor: &Multivector<A, T>, cutoff: T) {
        for _ in 0..20 {
            if self.is_exact() {
                return;
            }
            let rest = self.rest(rotor);
            // Once what has no null generator is right it stays: other parts may depend on its last digits.
            let settled = rest.sizes()[0] <= T::epsilon() * T::from_f64(8.0);
            let rest = if settled { rest.difference(&rest.without_null_generators()) } else { rest };
            let step = self.log.newton_step(&rest, cutoff);
            let mut length = T::one();
            let improved = (0..5).find_map(|_| {
                let next = self.with(self.log.sum(&step.scaled(&length)), rotor);
                length *= T::from_f64(0.5);
                (next.error < self.error).then_some(next)
            });
            match improved {
                Some(next) => *self = next,
                None => return,
            }
        }
    }
}

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The part without null generators.
    pub(super) fn without_null_generators(&self) -> Self {
        self.with_null_generators_scaled(&T::zero())
    }

    /// The bivector X with φ(ad B) X = `rest`, the shortest one that comes closest.
    fn newton_step(&self, rest: &Self, cutoff: T) -> Self {
        let n = self.algebra().signature().dimension();
        let first = n + 1;
        let planes = n * n.saturating_sub(1) / 2;
        let columns: Vec<Self> = (first..first + planes)
            .filter_map(|blade| Self::blade_in(self.algebra(), blade, T::one()).ok())
            .map(|plane| self.times(&plane).difference(&plane.times(self)))
            .collect();
        let adjoint = Matrix::new(planes, |row, column| columns[column].coefficients()[first + row]);
        let mean = adjoint.mean_of_exponentials();
        let solution = mean.least_squares(&rest.coefficients()[first..first + planes], cutoff);
        let mut step = Self::zero_in(self.algebra());
        step.coefficients_mut()[first..first + planes].copy_from_slice(&solution);
        step
    }
}
