//! The geometric product.

use crate::{
    CliffordAlgebra, Multivector, Scalar,
    blade::{Product, Rule},
};

/// The geometric product.
pub struct Geometric;

impl Rule for Geometric {
    const PRODUCT: Product = Product::Geometric;
    const NAME: &'static str = "geometric product";
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The geometric product a b: associative, and a a = q(a) for vectors. `*` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn geometric_product(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<Geometric>(right)
    }

    /// The geometric product of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn times(&self, right: &Self) -> Self {
        self.raw_product::<Geometric>(right)
    }
}
