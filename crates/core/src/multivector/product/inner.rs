//! The contractions, the inner product and the scalar product.

use crate::{
    CliffordAlgebra, Multivector, Scalar,
    blade::{Product, Rule},
};

struct LeftContraction;

impl Rule for LeftContraction {
    const PRODUCT: Product = Product::LeftContraction;
    const NAME: &'static str = "left contraction";
}

struct RightContraction;

impl Rule for RightContraction {
    const PRODUCT: Product = Product::RightContraction;
    const NAME: &'static str = "right contraction";
}

/// The inner product.
pub struct Inner;

impl Rule for Inner {
    const PRODUCT: Product = Product::Inner;
    const NAME: &'static str = "inner product";
}

struct ScalarProduct;

impl Rule for ScalarProduct {
    const PRODUCT: Product = Product::Scalar;
    const NAME: &'static str = "scalar product";
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The left contraction a ⌋ b = Σ ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩ₖ₋ⱼ, zero where k < j: the part of b perpendicular to a. It is what
    /// makes (x ∧ a) ∗ b = x ∗ (a ⌋ b) hold (Dorst, "The inner products of geometric algebra", 2002).
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn left_contraction(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<LeftContraction>(right)
    }

    /// The right contraction a ⌊ b = Σ ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩ⱼ₋ₖ, zero where j < k: the mirror of the left one under reversion.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn right_contraction(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<RightContraction>(right)
    }

    /// The inner product a • b = Σ ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩_|j−k|. This is Dorst's "fat dot", for which scalars act as factors;
    /// Hestenes' inner product differs only in dropping the terms with a scalar. `|` for type-level
    /// algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn inner_product(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<Inner>(right)
    }

    /// The scalar product a ∗ b = ⟨a b⟩₀. Symmetric; a ∗ reverse(a) is the [squared norm](Self::squared_norm).
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn scalar_product(&self, right: &Self) -> A::Checked<T> {
        self.algebra.checked(&right.algebra, ScalarProduct::NAME, || {
            self.raw_product::<ScalarProduct>(right).scalar_part()
        })
    }
}
