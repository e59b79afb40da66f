//! The bilinear products. All are the geometric product restricted to some of its terms; one file per family.

mod commutator;
mod geometric;
mod inner;
mod outer;

use super::Multivector;
use crate::{CliffordAlgebra, Scalar};

/// Which terms of the geometric product a product keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// All of them.
    Geometric,
    /// Those of blades without a common generator.
    Outer,
    /// Those whose left blade is contained in the right one.
    LeftContraction,
    /// Those whose right blade is contained in the left one.
    RightContraction,
    /// Those of either contraction.
    Inner,
    /// Those of a blade with itself.
    Scalar,
    /// Those of blades that anticommute.
    Commutator,
}

impl Product {
    /// Whether the term of blades `a` and `b`, as bit sets, is kept.
    pub(crate) const fn keeps(self, a: u16, b: u16) -> bool {
        match self {
            Self::Geometric => true,
            Self::Outer => a & b == 0,
            Self::LeftContraction => a & !b == 0,
            Self::RightContraction => b & !a == 0,
            Self::Inner => a & !b == 0 || b & !a == 0,
            Self::Scalar => a == b,
            // Each of the |a||b| pairs of generators anticommutes unless it is one generator twice.
            Self::Commutator => (a.count_ones() * b.count_ones() - (a & b).count_ones()) % 2 == 1,
        }
    }
}

/// A product as a type, so that each has compile-time tables of its own.
pub trait Rule {
    /// The terms it keeps.
    const PRODUCT: Product;
    /// Its name in errors.
    const NAME: &'static str;
}

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
