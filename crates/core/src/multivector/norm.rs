//! Norms.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result, Scalar, blade::squares};
use num_traits::Float;

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The squared norm q(x) = ⟨reverse(x) x⟩₀, signed: the quadratic form extended to all blades. It overflows and vanishes
    /// where squares of coefficients do; [`norm`](Self::norm) does not.
    pub fn squared_norm(&self) -> T {
        let signature = self.algebra.signature();
        self.coefficients().iter().zip(self.algebra.masks()).fold(T::zero(), |sum, (c, &mask)| {
            let square = || c.clone() * c.clone();
            match squares(signature, mask) {
                1 => sum + square(),
                -1 => sum - square(),
                _ => sum,
            }
        })
    }
}

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The norm ‖x‖ = √|q(x)| with the [squared norm](Self::squared_norm) q. Also zero for nonzero null elements, if the metric has any.
    /// Coefficients of any size are fine: squares are taken of multiples near 1.
    pub fn norm(&self) -> T {
        let (x, unit) = self.in_binary_units();
        Float::sqrt(Float::abs(x.squared_norm())) * unit
    }

    /// x / ‖x‖, whose squared norm is 1 or −1.
    ///
    /// For coefficients of any size, and in projective algebras at any distance from the origin: coefficients of
    /// blades with a null generator do not count for the norm, and do not decide whether there is one.
    ///
    /// # Errors
    /// [`Error::Undefined`] if the norm is zero: if q(x) is at most 2¹² ulps of the sum of squares that it is the signed sum of
    /// (5e-4 in `f32`, 9e-13 in `f64`), as of null vectors; or if a coefficient is not finite.
    pub fn normalized(&self) -> Result<Self> {
        let undefined = Error::Undefined {
            operation: "normalization",
            reason: "the norm is zero or not finite, so there is no multiple of unit norm",
        };
        let (x, _) = self.in_binary_units();
        let square = x.squared_norm();
        if !square.is_finite() || square.is_negligible(&x.squared_size()) {
            return Err(undefined);
        }
        let norm = Float::sqrt(Float::abs(square));
        let unit = x.map(|_, &c| c / norm);
        if unit.is_finite() { Ok(unit) } else { Err(undefined) }
    }
}
