//! Duality: the complement, which every metric has, and the Hodge star, which depends on the metric.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar, blade::outer_sign};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The dual of x: its right complement. A blade E becomes the blade of the other generators with the sign that
    /// makes E ∧ dual(E) the pseudoscalar I = e12…n. `!x` for short.
    ///
    /// This or [`hodge_star`](Self::hodge_star)? The dual does not look at the metric, so it loses nothing where
    /// I² = 0 (projective algebras), [`undual`](Self::undual) always takes it back, and meets and joins are made of it.
    /// The Hodge star is reverse(x) I and measures: x ∧ ⋆x = q(x) I. The two are one in a Euclidean algebra; elsewhere
    /// ⋆ gives each blade the sign of its square, and sends blades with a null generator to zero. The dual of books on
    /// Euclidean or conformal algebras, x I⁻¹, differs from both by a sign for each grade:
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector, Pga3, Sta};
    ///
    /// let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
    /// assert_eq!((!e1, e1.hodge_star()), (e2 * e3, e2 * e3));
    /// let pseudoscalar = e1 * e2 * e3;
    /// assert_eq!(e1 * pseudoscalar.inverse()?, -!e1);
    ///
    /// // A space-like generator of space-time, e2² = −1: the star has the other sign.
    /// let [_, e2, ..] = Multivector::<Sta, f64>::generators::<4>();
    /// assert_eq!(e2.hodge_star(), -!e2);
    ///
    /// // The null generator of projective space: the star forgets it, the dual does not.
    /// let [e1, e2, e3, e4] = Multivector::<Pga3, f64>::generators();
    /// assert!(e4.hodge_star().is_zero());
    /// assert_eq!(!e4, -(e1 * e2 * e3));
    /// assert_eq!((!e4).undual(), e4);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    pub fn dual(&self) -> Self {
        self.complement(|blade, rest| outer_sign(rest, blade))
    }

    /// The inverse of [`dual`](Self::dual): the left complement. A blade E becomes the blade of the other generators
    /// with the sign that makes undual(E) ∧ E the pseudoscalar.
    pub fn undual(&self) -> Self {
        self.complement(outer_sign)
    }

    /// The Hodge star ⋆x = reverse(x) I: the duality that depends on the metric. [`dual`](Self::dual) does not depend on it, and its
    /// documentation says when to use which. For x and y of one grade, x ∧ ⋆y = (reverse(x) ∗ y) I. Not invertible if the metric is
    /// degenerate: every blade with a null generator then maps to zero.
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
