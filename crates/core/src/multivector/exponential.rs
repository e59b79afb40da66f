//! The exponential of bivectors and the logarithm of rotors, in closed form.
//!
//! Both rest on B² = s + Q with s a scalar and Q = ⟨B²⟩₄. If Q² = 0, functions of B² are dual numbers,
//! f(s + Q) = f(s) + f′(s) Q, and so exp B = C(B²) + S(B²) B with C(z) = cosh √z and S(z) = sinh √z / √z.
//! Q = 0 for a simple bivector (every bivector for n ≤ 3), and Q² = 0 for every bivector of Cl(3,0,1), where Q is the
//! pitch of a screw motion.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result};
use num_traits::Float;

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The exponential of a bivector, a rotor: exp(−½ θ B) with B² = −1 turns by the angle θ, with B² = 1 boosts by
    /// the rapidity θ, with B² = 0 translates (in projective algebras).
    ///
    /// Closed forms are used for simple bivectors of any signature and, more generally, bivectors with ⟨B²⟩₄² = 0:
    /// all of them for n ≤ 3 and in Cl(3,0,1).
    ///
    /// # Errors
    /// [`Error::Undefined`] for anything but a bivector, and for bivectors without the closed form; split such a
    /// bivector into commuting simple ones and multiply their exponentials.
    pub fn exp(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "exp", reason };
        let bivector = self.grade(2);
        if !self.difference(&bivector).scale().is_negligible(&self.scale()) {
            return Err(undefined("only bivectors have a closed form here"));
        }
        let square = bivector.times(&bivector);
        let (s, pitch) = (square.scalar_part(), square.grade(4));
        if !squares_to_zero(&pitch, bivector.scale()) {
            return Err(undefined(
                "the bivector is a sum of commuting planes with ⟨B²⟩₄² ≠ 0; split it first",
            ));
        }
        let (cosine, sine) = (cosh_root(s), sinhc_root(s));
        // C′ = S / 2.
        let even = pitch.scaled(&(sine * T::from_f64(0.5)));
        let factor = pitch.scaled(&sinhc_root_derivative(s)).plus_scalar(sine);
        Ok(even.plus_scalar(cosine).sum(&factor.times(&bivector)))
    }

    /// The logarithm of a rotor R (even, reverse(R) R = 1): the bivector B with exp(B) = R whose rotation angle,
    /// 2√−B² for a rotation, is at most 2π. For R = −1 the plane is not determined and the first one that rotates is
    /// taken.
    ///
    /// # Errors
    /// [`Error::Undefined`] if R is not a rotor; if ⟨R⟩₄² ≠ 0, where there is no closed form (see [`exp`](Self::exp));
    /// and if R is minus a boost or minus a translation, which are not exponentials of one bivector: take −R, which
    /// moves everything as R does.
    pub fn log(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "log", reason };
        if !self.is_rotor() {
            return Err(undefined("only rotors (even, reverse(R) R = 1) have a logarithm; normalize first"));
        }
        let (cosine, bivector, pitch) = (self.scalar_part(), self.grade(2), self.grade(4));
        let rest = self.select(|grade| grade > 4);
        if !rest.scale().is_negligible(&self.scale()) || !squares_to_zero(&pitch, self.scale()) {
            return Err(undefined("the rotor turns in several planes at once (⟨R⟩₄² ≠ 0); factor it first"));
        }
        let square = bivector.times(&bivector).scalar_part();
        let length = square.abs().sqrt();
        if cosine < T::zero() && square >= T::zero() {
            return match (bivector.is_zero() && pitch.is_zero()).then(|| self.half_turn()).flatten() {
                Some(plane) => Ok(plane.scaled(&T::from_f64(std::f64::consts::PI))),
                None => Err(undefined("R is minus a boost or minus a translation; take the logarithm of −R")),
            };
        }
        // B = x · bivector for the angle (or rapidity) x·length; its square is s.
        let angle = if square < T::zero() { length.atan2(cosine) } else { length.asinh() };
        let sine = if angle == T::zero() { T::one() } else { length / angle };
        let s = if square < T::zero() { -(angle * angle) } else { angle * angle };
        // bivector = (S + S′ Q) B and ⟨R⟩₄ = C′ Q = ½ S Q, to be solved for B with Q² = 0.
        let q = pitch.scaled(&(T::from_f64(2.0) / sine));
        let factor = q.scaled(&(-sinhc_root_derivative(s) / (sine * sine))).plus_scalar(sine.recip());
        Ok(factor.times(&bivector).grade(2))
    }

    /// Whether this is even with reverse(R) R = 1, up to rounding.
    pub(crate) fn is_rotor(&self) -> bool {
        let scale = self.scale();
        let even = self.odd_part().scale().is_negligible(&scale);
        even && self
            .scalar_norm()
            .is_some_and(|norm| (norm - T::one()).is_negligible(&Float::max(scale, T::one())))
    }

    /// The first basis bivector that squares to −1.
    fn half_turn(&self) -> Option<Self> {
        let signature = self.algebra.signature();
        let n = signature.dimension();
        let planes = (n + 1)..=(n + n * n.saturating_sub(1) / 2);
        planes
            .filter_map(|blade| Self::blade_in(&self.algebra, blade, T::one()).ok())
            .find(|plane| plane.times(plane).scalar_part() < T::zero())
    }

    pub(crate) fn plus_scalar(mut self, value: T) -> Self {
        if let Some(scalar) = self.coefficients_mut().first_mut() {
            *scalar += value;
        }
        self
    }
}

/// Whether `pitch`, of the order of `scale` at most, squares to zero up to rounding.
fn squares_to_zero<A: CliffordAlgebra, T: Real>(pitch: &Multivector<A, T>, scale: T) -> bool {
    pitch.times(pitch).coefficients().iter().all(|c| c.is_negligible(&(scale * scale)))
}

/// C(s) = cosh √s, which is cos √−s for s < 0.
fn cosh_root<T: Real>(s: T) -> T {
    let root = s.abs().sqrt();
    if s < T::zero() { root.cos() } else { root.cosh() }
}

/// S(s) = sinh √s / √s, which is sin √−s / √−s for s < 0, and 1 at 0.
fn sinhc_root<T: Real>(s: T) -> T {
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
fn sinhc_root_derivative<T: Real>(s: T) -> T {
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

    #[test]
    fn derivative_agrees_with_central_differences() {
        for s in [-30.0f64, -4.0, -0.3, 0.0, 0.2, 2.0, 20.0] {
            let h = 1e-5;
            let slope = (sinhc_root(s + h) - sinhc_root(s - h)) / (2.0 * h);
            assert!((sinhc_root_derivative(s) - slope).abs() <= 1e-9 * slope.abs(), "at {s}");
        }
    }
}
