//! The commutator product.

use crate::{
    CliffordAlgebra, Multivector, Scalar,
    blade::{Product, Rule},
};

struct Commutator;

impl Rule for Commutator {
    const PRODUCT: Product = Product::Commutator;
    const NAME: &'static str = "commutator product";
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The commutator product a × b = ½ (a b − b a). With a bivector on one side it preserves grades; bivectors form
    /// a Lie algebra under it. Exact for integers too: each term of a b either stays whole or cancels.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn commutator_product(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<Commutator>(right)
    }
}
