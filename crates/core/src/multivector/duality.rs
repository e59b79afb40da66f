//! Duality: the complement, which every metric has, and the Hodge star, which depends on the metric.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar, blade::outer_sign};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The dual of x: its right complement. A blade E becomes the blade of the other generators with the sign that
    /// makes E ∧ dual(E) the pseudoscalar I = e12…n. It does not look at the metric, so nothing is lost where
    /// I² = 0 (projective algebras), and [`undual`](Self::undual) always takes it back.
    ///
    /// In a Euclidean algebra it is reverse(x) I, the [Hodge star](Self::hodge_star). Elsewhere it differs by signs
    /// from that and from the polarity x I⁻¹ of nondegenerate algebras.
    pub fn dual(&self) -> Self {
        self.complement(|blade, rest| outer_sign(rest, blade))
    }

    /// The inverse of [`dual`](Self::dual): the left complement. A blade E becomes the blade of the other generators
    /// with the sign that makes undual(E) ∧ E the pseudoscalar.
    pub fn undual(&self) -> Self {
        self.complement(outer_sign)
    }

    /// The Hodge star ⋆x = reverse(x) I, for which x ∧ ⋆y = (reverse(x) ∗ y) I when x and y have one grade. Not
    /// invertible if the metric is degenerate: it then sends every blade with a null generator to zero.
    pub fn hodge_star(&self) -> Self {
        self.reverse().times(&Self::pseudoscalar_in(&self.algebra))
    }

    /// Each coefficient moved to the complementary blade, with the sign of (new blade, old blade).
    fn complement(&self, sign: impl Fn(u16, u16) -> i8) -> Self {
        let (masks, positions) = (self.algebra.masks(), self.algebra.positions());
        let all = (masks.len() - 1) as u16;
        self.build(|blade| {
            let mask = masks[blade];
            let rest = all & !mask;
            let coefficient = self.coefficients()[usize::from(positions[usize::from(rest)])].clone();
            if sign(mask, rest) < 0 { -coefficient } else { coefficient }
        })
    }
}
