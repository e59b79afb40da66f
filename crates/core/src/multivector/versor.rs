//! The action of versors: the sandwich and reflections.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Result, Scalar};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The action of the versor v = `self` on x: v x v⁻¹ if v is even, v x̂ v⁻¹ with the grade involution x̂ if v is
    /// odd, which is what makes a vector v reflect in the hyperplane perpendicular to it. An automorphism of the
    /// algebra that preserves grades and norms: exactly so for grades, since noise in grades that x does not have
    /// is removed.
    ///
    /// A [`Rotor`](crate::Rotor) does the same without the checks and the inverse.
    ///
    /// # Errors
    /// [`Error::Undefined`] if reverse(v) v is no scalar other than zero, if v is neither even nor odd, or (beyond five
    /// dimensions) if it maps a vector to what is none: each up to 2¹² ulps of what enters (5e-4 in `f32`, 9e-13 in `f64`);
    /// if the result overflows;
    /// [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn sandwich(&self, x: &Self) -> Result<Self> {
        A::into_result(self.algebra.checked(&x.algebra, "sandwich", || ()))?;
        let inverse = self.versor_inverse()?;
        let undefined = |reason| Error::Undefined { operation: "sandwich", reason };
        let (even, odd) = (self.even_part(), self.odd_part());
        // Only one part is used, so that noise in the other adds nothing.
        let (part, image) = if odd.is_negligible_beside(&even) {
            (even, x.clone())
        } else if even.is_negligible_beside(&odd) {
            (odd, x.involution())
        } else {
            return Err(undefined("the left operand has even and odd parts, so it is not a versor"));
        };
        if !part.maps_vectors_to_vectors(&inverse) {
            return Err(undefined("the left operand maps vectors to what is none, so it is not a versor"));
        }
        let moved = part.times(&image).times(&inverse).in_grades_of(x);
        if x.is_finite() && !moved.is_finite() {
            return Err(undefined("a coefficient of the result overflows"));
        }
        Ok(moved)
    }

    /// The reflection of `self` in the hyperplane through the origin perpendicular to `normal`, a vector of any length:
    /// normal · involution(x) · normal⁻¹. A vector along `normal` changes sign, one perpendicular to it stays.
    ///
    /// # Errors
    /// [`Error::Undefined`] if `normal` is not a vector or its square is zero (or, for integers, if the result of
    /// 1 / normal has fractions); [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn reflected(&self, normal: &Self) -> Result<Self> {
        if normal.grades() != [1] {
            let reason = "the normal of a hyperplane is a vector other than zero";
            return Err(Error::Undefined { operation: "reflection", reason });
        }
        normal.sandwich(self)
    }

    /// The part in the grades that `x` has.
    pub(crate) fn in_grades_of(&self, x: &Self) -> Self {
        let present = x.present_grades();
        self.select(|grade| present >> grade & 1 == 1)
    }
}
