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
    /// [`Error::Undefined`] if reverse(v) v is no scalar other than zero, or if v is neither even nor odd;
    /// [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn sandwich(&self, x: &Self) -> Result<Self> {
        A::into_result(self.algebra.checked(&x.algebra, "sandwich", || ()))?;
        let inverse = self.versor_inverse()?;
        let scale = self.scale();
        let vanishes = |part: Self| part.scale().is_negligible(&scale);
        if vanishes(self.odd_part()) {
            Ok(self.times(x).times(&inverse).in_grades_of(x))
        } else if vanishes(self.even_part()) {
            Ok(self.times(&x.involution()).times(&inverse).in_grades_of(x))
        } else {
            let reason = "the left operand has even and odd parts, so it is not a versor";
            Err(Error::Undefined { operation: "sandwich", reason })
        }
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
