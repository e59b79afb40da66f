//! The bilinear products. All are the geometric product restricted to some of its terms; one file per family.

mod commutator;
mod geometric;
mod inner;
mod outer;

pub(crate) use inner::Inner;
pub(crate) use outer::Outer;

use super::Multivector;
use crate::{CliffordAlgebra, Scalar, blade::Rule};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The product by rule `R` of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn raw_product<R: Rule>(&self, right: &Self) -> Self {
        Self {
            algebra: self.algebra.clone(),
            coefficients: self.algebra.product::<R, T>(&self.coefficients, &right.coefficients),
        }
    }

    /// The product by rule `R`, of one algebra if the operands are.
    #[inline]
    fn checked_product<R: Rule>(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, R::NAME, || self.raw_product::<R>(right))
    }
}
