//! What a run-time algebra and a type-level algebra have in common.

use crate::{Algebra, Error, Result, Scalar, Signature, blade::Rule};
use alloc::{vec, vec::Vec};
use core::fmt;

/// A Clifford algebra that a [`Multivector`](crate::Multivector) can belong to.
///
/// There are two kinds. [`Algebra`] is a value: any signature, chosen at run time, and multivectors of different
/// algebras are told apart when they meet. [`Cl<P, Q, R>`](crate::Cl) is a type: multivectors are arrays on the stack
/// and multivectors of different algebras do not compile together. [`Checked`](Self::Checked) is how one method
/// serves both. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Clifford algebra",
    note = "`Cl<P, Q, R>` is one for P + Q + R ≤ 8; for a signature known at run time use `Algebra`"
)]
pub trait CliffordAlgebra: sealed::Sealed + Clone + PartialEq + fmt::Debug {
    /// The 2ⁿ coefficients of a multivector: an array for [`Cl`](crate::Cl), a vector for [`Algebra`].
    type Coefficients<T: Scalar>: AsRef<[T]> + AsMut<[T]> + Clone + PartialEq + fmt::Debug;

    /// What an operation on two multivectors returns: `X` itself where the types already guarantee one algebra,
    /// [`Result<X>`] with [`Error::AlgebraMismatch`] where that is only known at run time.
    type Checked<X>;

    /// The signature (p, q, r).
    fn signature(&self) -> Signature;

    /// Forgets the difference between the two kinds: an `X` becomes `Ok(X)`, a [`Result<X>`] stays what it is.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`] if that is what `checked` holds.
    fn into_result<X>(checked: Self::Checked<X>) -> Result<X>;

    /// Runs `operation` if both operands belong to one algebra.
    #[doc(hidden)]
    fn checked<X>(&self, other: &Self, name: &'static str, operation: impl FnOnce() -> X)
    -> Self::Checked<X>;

    /// Blade index → bit set of generators.
    #[doc(hidden)]
    fn masks(&self) -> &[u16];

    /// Bit set of generators → blade index.
    #[doc(hidden)]
    fn positions(&self) -> &[u16];

    /// One coefficient per blade.
    #[doc(hidden)]
    fn coefficients<T: Scalar>(&self, coefficient: impl FnMut(usize) -> T) -> Self::Coefficients<T>;

    /// The sum over the terms of the Cayley table that `rule` keeps.
    #[doc(hidden)]
    fn product<R: Rule, T: Scalar>(
        &self,
        left: &Self::Coefficients<T>,
        right: &Self::Coefficients<T>,
    ) -> Self::Coefficients<T>;
}

/// An algebra that is a type: [`Cl<P, Q, R>`](crate::Cl) with P + Q + R ≤ 8.
///
/// Its multivectors have operators (`+`, `-`, `*`) and need no algebra value to be made. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type-level Clifford algebra",
    note = "`Cl<P, Q, R>` is one for P + Q + R ≤ 8"
)]
pub trait TypeLevel: CliffordAlgebra + Copy + Default {
    /// The signature (p, q, r).
    const SIGNATURE: Signature;

    /// The algebra's only value.
    #[doc(hidden)]
    const ALGEBRA: Self;

    /// The product of two multivectors, without the wrapper `Checked`.
    #[doc(hidden)]
    fn unwrap<X>(checked: Self::Checked<X>) -> X;
}

impl CliffordAlgebra for Algebra {
    type Coefficients<T: Scalar> = Vec<T>;
    type Checked<X> = Result<X>;

    fn signature(&self) -> Signature {
        Algebra::signature(self)
    }

    fn into_result<X>(checked: Result<X>) -> Result<X> {
        checked
    }

    fn checked<X>(&self, other: &Self, name: &'static str, operation: impl FnOnce() -> X) -> Result<X> {
        if self == other {
            Ok(operation())
        } else {
            Err(Error::AlgebraMismatch { operation: name, left: self.signature(), right: other.signature() })
        }
    }

    fn masks(&self) -> &[u16] {
        Algebra::masks(self)
    }

    fn positions(&self) -> &[u16] {
        Algebra::positions(self)
    }

    fn coefficients<T: Scalar>(&self, coefficient: impl FnMut(usize) -> T) -> Vec<T> {
        (0..self.blade_count()).map(coefficient).collect()
    }

    fn product<R: Rule, T: Scalar>(&self, left: &Vec<T>, right: &Vec<T>) -> Vec<T> {
        let mut out = vec![T::zero(); self.blade_count()];
        for term in self.tables.product(R::PRODUCT) {
            let value = left[usize::from(term.left)].clone() * right[usize::from(term.right)].clone();
            let sum = &mut out[usize::from(term.out)];
            if term.negative {
                *sum -= value;
            } else {
                *sum += value;
            }
        }
        out
    }
}

pub(crate) mod sealed {
    /// Keeps the trait's hidden methods free to change.
    pub trait Sealed {}

    impl Sealed for crate::Algebra {}
}
