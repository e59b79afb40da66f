//! Operators. Those of two multivectors are for type-level algebras, where no check can fail.
//!
//! | | |
//! |---|---|
//! | `a + b`, `a - b`, `-a` | sums; a scalar on either side counts for the scalar part |
//! | `a * b` | geometric product |
//! | `a ^ b` | outer product, [`wedge`](Multivector::wedge) |
//! | `a \| b` | inner product |
//! | `a & b` | regressive product, [`vee`](Multivector::vee) |
//! | `!a` | [`dual`](Multivector::dual) |
//!
//! Rust's precedence is that of integers: `^`, `\|` and `&` bind weaker than `+`, so write `(a ^ b) + c`.

use super::{
    Multivector,
    product::{Inner, Outer},
};
use crate::{CliffordAlgebra, Scalar, TypeLevel};
use core::{
    iter::{Product, Sum},
    ops::{
        Add, AddAssign, BitAnd, BitOr, BitXor, BitXorAssign, Div, DivAssign, Mul, MulAssign, Neg, Not, Sub,
        SubAssign,
    },
};

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

impl<A: CliffordAlgebra, T: Scalar> Div<T> for &Multivector<A, T> {
    type Output = Multivector<A, T>;

    #[inline]
    fn div(self, divisor: T) -> Self::Output {
        self.map(|_, c| c.clone() / divisor.clone())
    }
}

/// A scalar beside a multivector in a sum: it counts for the scalar part.
macro_rules! scalar_in_a_sum {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $operator:tt)*) => {$(
        impl<A: CliffordAlgebra, T: Scalar> $assign<T> for Multivector<A, T> {
            #[inline]
            fn $assign_method(&mut self, value: T) {
                if let Some(scalar) = self.coefficients_mut().first_mut() {
                    *scalar $operator value;
                }
            }
        }

        impl<A: CliffordAlgebra, T: Scalar> $trait<T> for Multivector<A, T> {
            type Output = Self;

            #[inline]
            fn $method(mut self, value: T) -> Self {
                self $operator value;
                self
            }
        }

        impl<A: CliffordAlgebra, T: Scalar> $trait<T> for &Multivector<A, T> {
            type Output = Multivector<A, T>;

            #[inline]
            fn $method(self, value: T) -> Self::Output {
                $trait::$method(self.clone(), value)
            }
        }
    )*};
}

scalar_in_a_sum!(Add add AddAssign add_assign += Sub sub SubAssign sub_assign -=);

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

        impl<A: CliffordAlgebra> Add<Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn add(self, right: Multivector<A, $scalar>) -> Self::Output {
                right + self
            }
        }

        impl<A: CliffordAlgebra> Add<&Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn add(self, right: &Multivector<A, $scalar>) -> Self::Output {
                right + self
            }
        }

        impl<A: CliffordAlgebra> Sub<Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn sub(self, right: Multivector<A, $scalar>) -> Self::Output {
                -right + self
            }
        }

        impl<A: CliffordAlgebra> Sub<&Multivector<A, $scalar>> for $scalar {
            type Output = Multivector<A, $scalar>;

            #[inline]
            fn sub(self, right: &Multivector<A, $scalar>) -> Self::Output {
                -right + self
            }
        }
    )*};
}

scalar_from_the_left!(f32 f64 i8 i16 i32 i64 i128 isize);

/// An operator between two multivectors, by value or by reference.
macro_rules! operator {
    ($trait:ident, $method:ident, $($implementation:tt)+) => {
        impl<A: TypeLevel, T: Scalar> $trait<&Multivector<A, T>> for &Multivector<A, T> {
            type Output = Multivector<A, T>;

            #[inline]
            fn $method(self, right: &Multivector<A, T>) -> Self::Output {
                self.$($implementation)+(right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait<Multivector<A, T>> for &Multivector<A, T> {
            type Output = Multivector<A, T>;

            #[inline]
            fn $method(self, right: Multivector<A, T>) -> Self::Output {
                self.$($implementation)+(&right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait<&Multivector<A, T>> for Multivector<A, T> {
            type Output = Self;

            #[inline]
            fn $method(self, right: &Self) -> Self {
                self.$($implementation)+(right)
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait for Multivector<A, T> {
            type Output = Self;

            #[inline]
            fn $method(self, right: Self) -> Self {
                self.$($implementation)+(&right)
            }
        }
    };
}

operator!(Add, add, sum);
operator!(Sub, sub, difference);
operator!(Mul, mul, times);
operator!(BitXor, bitxor, raw_product::<Outer>);
operator!(BitOr, bitor, raw_product::<Inner>);
operator!(BitAnd, bitand, raw_regressive);

/// The [dual](Multivector::dual): `!x`. Not the reverse, which other languages write `~x`: that is
/// [`reverse`](Multivector::reverse).
impl<A: CliffordAlgebra, T: Scalar> Not for &Multivector<A, T> {
    type Output = Multivector<A, T>;

    #[inline]
    fn not(self) -> Self::Output {
        self.dual()
    }
}

impl<A: CliffordAlgebra, T: Scalar> Not for Multivector<A, T> {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        self.dual()
    }
}

/// The operators that change the left operand, by value or by reference.
macro_rules! assignment {
    ($($trait:ident $method:ident $operator:tt)*) => {$(
        impl<A: TypeLevel, T: Scalar> $trait for Multivector<A, T> {
            #[inline]
            fn $method(&mut self, right: Self) {
                *self = &*self $operator &right;
            }
        }

        impl<A: TypeLevel, T: Scalar> $trait<&Self> for Multivector<A, T> {
            #[inline]
            fn $method(&mut self, right: &Self) {
                *self = &*self $operator right;
            }
        }
    )*};
}

assignment!(AddAssign add_assign + SubAssign sub_assign - MulAssign mul_assign * BitXorAssign bitxor_assign ^);

impl<A: TypeLevel, T: Scalar> Sum for Multivector<A, T> {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::zero(), Add::add)
    }
}

impl<'a, A: TypeLevel, T: Scalar> Sum<&'a Self> for Multivector<A, T> {
    fn sum<I: Iterator<Item = &'a Self>>(terms: I) -> Self {
        terms.fold(Self::zero(), Add::add)
    }
}

/// The geometric product of all factors in their order.
impl<A: TypeLevel, T: Scalar> Product for Multivector<A, T> {
    fn product<I: Iterator<Item = Self>>(factors: I) -> Self {
        factors.fold(Self::scalar(T::one()), Mul::mul)
    }
}
