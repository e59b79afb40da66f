//! Norms.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result, Scalar, blade::squares};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The squared norm q(x) = ⟨reverse(x) x⟩₀, signed: the quadratic form extended to all blades.
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

    /// reverse(x) x, if it is a scalar up to rounding.
    pub(crate) fn scalar_norm(&self) -> Option<T> {
        let product = self.reverse().times(self);
        let scale = self.scale();
        let rest = product.coefficients().get(1..).unwrap_or_default();
        rest.iter().all(|c| c.is_negligible(&scale)).then(|| product.scalar_part())
    }
}

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The norm ‖x‖ = √|q(x)| with the [squared norm](Self::squared_norm) q. Also zero for nonzero null elements, if the metric has any.
    pub fn norm(&self) -> T {
        num_traits::Float::sqrt(num_traits::Float::abs(self.squared_norm()))
    }

    /// x / ‖x‖, whose squared norm is 1 or −1.
    ///
    /// # Errors
    /// [`Error::Undefined`] if the norm is zero (or rounding noise beside the coefficients) or not a number.
    pub fn normalized(&self) -> Result<Self> {
        let (norm, square) = (self.norm(), self.squared_norm());
        if !norm.is_finite() || norm == T::zero() || square.is_negligible(&self.scale()) {
            return Err(Error::Undefined {
                operation: "normalization",
                reason: "the norm is zero or not finite, so there is no multiple of unit norm",
            });
        }
        Ok(self.map(|_, &c| c / norm))
    }
}
