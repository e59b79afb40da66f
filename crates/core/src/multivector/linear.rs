//! Sums and multiples.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The sum. `+` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn plus(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "sum", || self.sum(right))
    }

    /// The difference. `-` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn minus(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "difference", || self.difference(right))
    }

    /// The multiple by a scalar.
    #[inline]
    pub fn scaled(&self, factor: &T) -> Self {
        self.map(|_, c| c.clone() * factor.clone())
    }

    /// The sum of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn sum(&self, right: &Self) -> Self {
        self.build(|blade| self.coefficients()[blade].clone() + right.coefficients()[blade].clone())
    }

    /// The difference of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn difference(&self, right: &Self) -> Self {
        self.build(|blade| self.coefficients()[blade].clone() - right.coefficients()[blade].clone())
    }
}
