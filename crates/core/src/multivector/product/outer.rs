//! The outer product and its dual, the regressive product.

use super::{Product, Rule};
use crate::{CliffordAlgebra, Multivector, Scalar};

/// The outer product.
pub struct Outer;

impl Rule for Outer {
    const PRODUCT: Product = Product::Outer;
    const NAME: &'static str = "outer product";
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The outer (exterior) product a ∧ b = Σ ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩ⱼ₊ₖ: the span of subspaces without a common direction.
    /// Independent of the metric.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn outer_product(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<Outer>(right)
    }

    /// The regressive product a ∨ b: the intersection of subspaces that together span everything. It is the outer
    /// product seen through the complement, dual(a ∨ b) = dual(a) ∧ dual(b) with [`dual`](Self::dual), so it is
    /// independent of the metric, associative, and has the pseudoscalar as its unit.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    pub fn regressive_product(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "regressive product", || {
            self.dual().raw_product::<Outer>(&right.dual()).undual()
        })
    }
}
