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
    /// [`Error::Undefined`] for anything but a bivector with finite coefficients.
    pub fn exp(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "exp", reason };
        if !self.scale().is_finite() {
            return Err(undefined("a coefficient is not finite, or too large to be squared"));
        }
        let bivector =
            self.bivector_only().ok_or_else(|| undefined("only the exponential of a bivector is here"))?;
        let square = bivector.times(&bivector);
        let (s, pitch) = (square.scalar_part(), square.grade(4));
        let Some(sigma) = pitch.square_if_scalar(bivector.scale()) else {
            return Ok(bivector.exp_by_squaring());
        };
        let Functions { cosh, sinhc } = Functions::of(s, sigma);
        let even = pitch.scaled(&cosh.1);
        let factor = pitch.scaled(&sinhc.1).plus_scalar(sinhc.0);
        Ok(even.plus_scalar(cosh.0).sum(&factor.times(&bivector)))
    }

    /// exp(x) = exp(x / 2ᵐ)^2ᵐ, with m large enough for a short series.
    fn exp_by_squaring(&self) -> Self {
        // The sum of the magnitudes bounds every power.
        let mut size = self.coefficients().iter().fold(T::zero(), |sum, c| sum + c.abs());
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
    pub(super) fn bivector_only(&self) -> Option<Self> {
        let bivector = self.grade(2);
        self.difference(&bivector).scale().is_negligible(&self.scale()).then_some(bivector)
    }

    /// The square of this, of the order of `scale` at most, if it is a number up to rounding.
    pub(super) fn square_if_scalar(&self, scale: T) -> Option<T> {
        let square = self.times(self);
        let rest = square.coefficients().get(1..).unwrap_or_default();
        rest.iter().all(|c| c.is_negligible(&(scale * scale))).then(|| square.scalar_part())
    }

    pub(crate) fn plus_scalar(mut self, value: T) -> Self {
        if let Some(scalar) = self.coefficients_mut().first_mut() {
            *scalar += value;
        }
        self
    }
}
