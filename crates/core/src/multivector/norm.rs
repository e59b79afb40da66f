//! Norms and inverses.

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

    /// The inverse of a versor: reverse(x) / q(x). A versor is a product of vectors whose square is not zero; every
    /// other x for which reverse(x) x is a scalar other than zero has this inverse as well.
    ///
    /// # Errors
    /// [`Error::Undefined`] if reverse(x) x is zero or not a scalar (beyond rounding, for floats), or if the
    /// coefficients are integers and the inverse has fractions.
    pub fn inverse(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "inverse", reason };
        let reverse = self.reverse();
        let norm = self
            .scalar_norm()
            .ok_or_else(|| undefined("reverse(x) x is not a scalar, so x is not a versor"))?;
        if norm.is_zero() || norm.is_negligible(&self.scale()) {
            return Err(undefined("reverse(x) x is zero: x is a null versor"));
        }
        let mut inverse = reverse;
        for coefficient in inverse.coefficients_mut() {
            *coefficient = coefficient.quotient(&norm).ok_or_else(|| {
                undefined("the inverse has fractions; use rational or floating-point coefficients")
            })?;
        }
        Ok(inverse)
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
    /// The norm ‖x‖ = √|q(x)| with the [squared norm](Self::squared_norm) q. Zero for null elements other than zero
    /// too, if the metric has such.
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
