//! Sums, multiples, and the operators of type-level algebras.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar, TypeLevel};
use std::{
    iter::Sum,
    ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign},
};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The sum. `+` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn plus(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "sum", || self.sum(right))
    }

    /// The difference. `-` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn minus(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "difference", || self.difference(right))
    }

    /// The multiple by a scalar.
    #[inline]
    pub fn scaled(&self, factor: &T) -> Self {
        self.map(|_, c| c.clone() * factor.clone())
    }

    /// The sum of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn sum(&self, right: &Self) -> Self {
        self.build(|blade| self.coefficients()[blade].clone() + right.coefficients()[blade].clone())
    }

    /// The difference of multivectors known to share an algebra.
    #[inline]
    pub(crate) fn difference(&self, right: &Self) -> Self {
        self.build(|blade| self.coefficients()[blade].clone() - right.coefficients()[blade].clone())
    }
}

impl<A: CliffordAlgebra, T: Scalar> Neg for &Multivector<A, T> {
    type Output = Multivector<A, T>;

    #[inline]
    fn neg(self) -> Self::Output {
        self.map(|_, c| -c.clone())
    }
}

impl<A: CliffordAlgebra, T: Scalar> Neg for Multivector<A, T> {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        -&self
    }
}

impl<A: CliffordAlgebra, T: Scalar> MulAssign<T> for Multivector<A, T> {
    #[inline]
    fn mul_assign(&mut self, factor: T) {
        for coefficient in self.coefficients_mut() {
            *coefficient *= factor.clone();
        }
    }
}

impl<A: CliffordAlgebra, T: Scalar> DivAssign<T> for Multivector<A, T> {
    #[inline]
    fn div_assign(&mut self, divisor: T) {
        for coefficient in self.coefficients_mut() {
            *coefficient /= divisor.clone();
        }
    }
}

impl<A: CliffordAlgebra, T: Scalar> Mul<T> for Multivector<A, T> {
    type Output = Self;

    #[inline]
    fn mul(mut self, factor: T) -> Self {
        self *= factor;
        self
    }
}

impl<A: CliffordAlgebra, T: Scalar> Mul<T> for &Multivector<A, T> {
    type Output = Multivector<A, T>;

    #[inline]
    fn mul(self, factor: T) -> Self::Output {
        self.scaled(&factor)
    }
}

impl<A: CliffordAlgebra, T: Scalar> Div<T> for Multivector<A, T> {
    type Output = Self;

    #[inline]
    fn div(mut self, divisor: T) -> Self {
        self /= divisor;
        self
    }
}

/// Scalars from the left. The orphan rule wants each type by name.
macro_rules! scalar_from_the_left {
    ($($scalar:ty)*) => {$(
        impl<A: CliffordAlgebra> Mul<Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn mul(self, right: Multivector<A, $scalar>) -> Self::Output {
                right * self
            }
        }

        impl<A: CliffordAlgebra> Mul<&Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn mul(self, right: &Multivector<A, $scalar>) -> Self::Output {
                right * self
            }
        }
    )*};
}

scalar_from_the_left!(f32 f64 i8 i16 i32 i64 i128 isize);

/// An operator between two multivectors, by value or by reference.
macro_rules! operator {
    ($trait:ident, $method:ident, $implementation:ident) => {
        impl<A: TypeLevel, T: Scalar> $trait<&Multivector<A, T>> for &Multivector<A, T> {
            type Output = Multivector<A, T>;

            #[inline]
            fn $method(self, right: &Multivector<A, T>) -> Self::Output {
                self.$implementation(right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait<Multivector<A, T>> for &Multivector<A, T> {
            type Output = Multivector<A, T>;

            #[inline]
            fn $method(self, right: Multivector<A, T>) -> Self::Output {
                self.$implementation(&right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait<&Multivector<A, T>> for Multivector<A, T> {
            type Output = Self;

            #[inline]
            fn $method(self, right: &Self) -> Self {
                self.$implementation(right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait for Multivector<A, T> {
            type Output = Self;

            #[inline]
            fn $method(self, right: Self) -> Self {
                self.$implementation(&right)
            }
        }
    };
}

operator!(Add, add, sum);
operator!(Sub, sub, difference);
operator!(Mul, mul, times);

impl<A: TypeLevel, T: Scalar> AddAssign for Multivector<A, T> {
    #[inline]
    fn add_assign(&mut self, right: Self) {
        *self = &*self + right;
    }
}

impl<A: TypeLevel, T: Scalar> SubAssign for Multivector<A, T> {
    #[inline]
    fn sub_assign(&mut self, right: Self) {
        *self = &*self - right;
    }
}

impl<A: TypeLevel, T: Scalar> Sum for Multivector<A, T> {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::zero(), Add::add)
    }
}
