//! The exponential of bivectors.
//!
//! It rests on B² = s + Q with s a number and Q = ⟨B²⟩₄. Where Q² is a number too, which is so for every bivector up to
//! five dimensions, functions of B² are numbers and multiples of Q in closed form ([`Functions`]), and
//! exp B = C(B²) + S(B²) B with C(z) = cosh √z and S(z) = sinh √z / √z. Q = 0 for a simple bivector (every bivector for
//! n ≤ 3), Q² = 0 for every bivector of Cl(3,0,1), where Q is the pitch of a screw motion, Q² > 0 for two rotations or two
//! boosts, and Q² < 0 for a boost with a rotation (Roelfs and De Keninck, "Graded symmetry groups: plane and simple",
//! 2021).

use super::{Multivector, functions::Functions};
use crate::{CliffordAlgebra, Error, Real, Result};

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The exponential of a bivector, a rotor: exp(−½ θ B) with B² = −1 turns by the angle θ, with B² = 1 boosts by
    /// the rapidity θ, with B² = 0 translates (in projective algebras). A sum of commuting planes, such as a double
    /// rotation or a boost along the axis of a rotation, does what each does.
    ///
    /// In closed form up to five dimensions and wherever ⟨B²⟩₄² is a number; elsewhere by the power series of a small
    /// fraction of B, squared as often as needed, which loses about a digit for each factor of ten of ‖B‖.
    ///
    /// ```
    /// use gradewise_core::{Cl4, Multivector};
    /// use core::f64::consts::PI;
    ///
    /// // A quarter turn in one plane and a half turn in the plane perpendicular to it.
    /// let [e1, e2, e3, e4] = Multivector::<Cl4, f64>::generators();
    /// let turn = ((e1 ^ e2) * (-PI / 4.0) + (e3 ^ e4) * (-PI / 2.0)).exp()?;
    /// let moved = turn.sandwich(&(e1 + e3))?;
    /// assert!((moved - (e2 - e3)).norm() < 1e-15);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Undefined`] for anything but a bivector: where a coefficient of another grade exceeds 2¹² ulps (5e-4 in
    /// `f32`, 9e-13 in `f64`) of the largest coefficient of the bivector with as many null generators or fewer; if a coefficient is
    /// not finite; or if the result is not (a rapidity beyond 1,400, an angle whose square overflows).
    pub fn exp(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "exp", reason };
        if !self.is_finite() {
            return Err(undefined("a coefficient is not finite"));
        }
        let bivector = self.bivector_only().ok_or_else(|| undefined("only bivectors have one here"))?;
        let rotor = bivector.exp_of_bivector();
        if rotor.is_finite() { Ok(rotor) } else { Err(undefined("the coefficients of the result overflow")) }
    }

    /// exp of a bivector; not finite where it overflows.
    pub(super) fn exp_of_bivector(&self) -> Self {
        let square = self.times(self);
        let (s, pitch) = (square.scalar_part(), square.grade(4));
        let Some(sigma) = pitch.square_if_scalar() else {
            // Distances in a unit in which they are of the order of one: squaring is not exact beside large numbers.
            let unit = self.unit_of_length();
            let near = self.with_null_generators_scaled(&unit.recip());
            return near.exp_by_squaring().with_null_generators_scaled(&unit);
        };
        let Functions { cosh, sinhc } = Functions::of(s, sigma);
        let even = pitch.scaled(&cosh.1);
        let factor = pitch.scaled(&sinhc.1).plus_scalar(sinhc.0);
        even.plus_scalar(cosh.0).sum(&factor.times(self))
    }

    /// exp(x) = exp(x / 2ᵐ)^2ᵐ, with m large enough for a short series.
    fn exp_by_squaring(&self) -> Self {
        // The sum of the magnitudes bounds every power.
        let mut size = self.coefficients().iter().fold(T::zero(), |sum, c| sum + c.abs());
        if !size.is_finite() {
            return self.scaled(&T::nan());
        }
        let (mut fraction, mut squarings) = (T::one(), 0);
        let half = T::from_f64(0.5);
        while size > half {
            size *= half;
            fraction *= half;
            squarings += 1;
        }
        let small = self.scaled(&fraction);
        let mut sum = Self::scalar_in(self.algebra(), T::one());
        let mut term = sum.clone();
        // ½¹⁶ / 16! is 1e-18.
        for k in 1..=16 {
            term = term.times(&small).scaled(&T::from_f64(f64::from(k).recip()));
            sum = sum.sum(&term);
        }
        for _ in 0..squarings {
            sum = sum.times(&sum);
        }
        sum.even_part()
    }

    /// The bivector that this is, up to rounding.
    pub(crate) fn bivector_only(&self) -> Option<Self> {
        let bivector = self.grade(2);
        self.difference(&bivector).is_negligible_beside(&bivector).then_some(bivector)
    }

    /// The square of this 4-vector, if it is a number up to rounding: it always is up to five dimensions, where terms of
    /// other grades cancel exactly.
    pub(super) fn square_if_scalar(&self) -> Option<T> {
        let square = self.times(self);
        if self.algebra().signature().dimension() > 5 {
            let noise = T::epsilon() * T::from_f64(16.0);
            let mut rest = square.coefficients().iter().zip(self.scales_of_product(self)).skip(1);
            if !rest.all(|(c, scale)| c.abs() <= noise * scale) {
                return None;
            }
        }
        Some(square.scalar_part())
    }

    pub(crate) fn plus_scalar(mut self, value: T) -> Self {
        if let Some(scalar) = self.coefficients_mut().first_mut() {
            *scalar += value;
        }
        self
    }
}
