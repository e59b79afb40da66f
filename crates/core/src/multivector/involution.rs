//! The three sign changes by grade.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar, blade::reverse_sign};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The reverse x̃: grade k times (−1)^(k(k−1)/2), the order of all factors turned around. An antiautomorphism.
    #[inline]
    pub fn reverse(&self) -> Self {
        self.signed(|k| reverse_sign(k) < 0)
    }

    /// The grade involution x̂: grade k times (−1)^k, every vector negated. An automorphism.
    #[inline]
    pub fn involution(&self) -> Self {
        self.signed(|k| k % 2 == 1)
    }

    /// The Clifford conjugate: the reverse of the involution, grade k times (−1)^(k(k+1)/2). An antiautomorphism.
    #[inline]
    pub fn conjugate(&self) -> Self {
        self.signed(|k| (reverse_sign(k) < 0) != (k % 2 == 1))
    }

    #[inline]
    fn signed(&self, negative: impl Fn(u32) -> bool) -> Self {
        self.map(|mask, c| if negative(mask.count_ones()) { -c.clone() } else { c.clone() })
    }
}
