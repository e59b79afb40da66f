//! The numbers a multivector may have as coefficients.

use alloc::{
    format,
    string::{String, ToString},
};
use core::{fmt, ops::Neg, str::FromStr};
use num_integer::Integer;
use num_rational::Ratio;
use num_traits::{Float, Num, NumAssign, Signed};

/// A coefficient of a [`Multivector`](crate::Multivector): `f32`, `f64`, a signed integer, or a
/// [`Ratio`] of signed integers.
///
/// Integers and ratios make the algebra exact, which is how its laws are tested. Overflow is handled by the coefficient type: integers
/// behave as in any Rust arithmetic.
pub trait Scalar: Num + NumAssign + Neg<Output = Self> + Clone + PartialOrd + fmt::Debug {
    /// Whether sums, differences and products of such numbers are exact: those of integers and ratios, not of floats.
    const EXACT: bool;

    /// `self / divisor` where that is a number of this type: `None` for a zero divisor, and for integers that leave
    /// a remainder.
    fn quotient(&self, divisor: &Self) -> Option<Self>;

    /// Whether `self` is rounding noise beside `scale ≥ 0`: exactly zero for exact numbers, at most 2¹² ulps of
    /// `scale` for floats (the noise of a few thousand chained operations): 5e-4 of it in `f32`, 9e-13 in `f64`. Both are
    /// numbers of the same kind, both linear or both squared. NaN is never negligible.
    fn is_negligible(&self, scale: &Self) -> bool;

    /// The absolute value.
    fn magnitude(&self) -> Self;

    /// For floats a power of two within a factor of two of the magnitude of `self`, so that division by it does not round and
    /// leaves numbers whose squares neither overflow nor vanish (of subnormal numbers, the smallest normal one; of zero and of
    /// what is not finite, 1). For exact numbers 1.
    fn binary_unit(&self) -> Self;

    /// The number as text, negative ones with a leading `-`, with `precision` digits after the point if the type has
    /// such.
    fn to_text(&self, precision: Option<usize>) -> String;

    /// Reads what [`to_text`](Self::to_text) writes, without loss if that had no precision. `None` for anything that
    /// is not a number of this type.
    fn from_text(text: &str) -> Option<Self>;
}

/// A floating-point coefficient: what norms, exponentials, logarithms and rotors need. `f32` or `f64`.
pub trait Real: Scalar + Float {
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Scalar for $integer {
            const EXACT: bool = true;

            fn quotient(&self, divisor: &Self) -> Option<Self> {
                match self.checked_rem(*divisor) {
                    Some(0) => self.checked_div(*divisor),
                    _ => None,
                }
            }

            fn is_negligible(&self, _scale: &Self) -> bool {
                *self == 0
            }

            fn magnitude(&self) -> Self {
                if *self < 0 { -*self } else { *self }
            }

            fn binary_unit(&self) -> Self {
                1
            }

            fn to_text(&self, _precision: Option<usize>) -> String {
                self.to_string()
            }

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 i128 isize);

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl Scalar for $float {
            const EXACT: bool = false;

            fn quotient(&self, divisor: &Self) -> Option<Self> {
                (*divisor != 0.0).then(|| self / divisor)
            }

            fn is_negligible(&self, scale: &Self) -> bool {
                self.abs() <= 4096.0 * <$float>::EPSILON * scale
            }

            fn magnitude(&self) -> Self {
                self.abs()
            }

            fn binary_unit(&self) -> Self {
                if *self == 0.0 || !self.is_finite() {
                    return 1.0;
                }
                // The bits of the exponent alone.
                let power = <$float>::from_bits(self.to_bits() & <$float>::INFINITY.to_bits());
                power.max(<$float>::MIN_POSITIVE)
            }

            fn to_text(&self, precision: Option<usize>) -> String {
                match precision {
                    Some(digits) => format!("{self:.digits$}"),
                    // Beyond these bounds plain decimals are rows of zeros.
                    None if *self == 0.0 || (1e-5..1e16).contains(&self.abs()) || !self.is_finite() => self.to_string(),
                    None => format!("{self:e}"),
                }
            }

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }

        impl Real for $float {
            fn from_f64(value: f64) -> Self {
                value as $float
            }
        }
    )*};
}

floats!(f32 f64);

impl<I> Scalar for Ratio<I>
where
    I: Integer + Signed + NumAssign + Clone + fmt::Debug + fmt::Display + FromStr,
{
    const EXACT: bool = true;

    fn quotient(&self, divisor: &Self) -> Option<Self> {
        (!num_traits::Zero::is_zero(divisor)).then(|| self.clone() / divisor.clone())
    }

    fn is_negligible(&self, _scale: &Self) -> bool {
        num_traits::Zero::is_zero(self)
    }

    fn magnitude(&self) -> Self {
        if Signed::is_negative(self) { -self.clone() } else { self.clone() }
    }

    fn binary_unit(&self) -> Self {
        num_traits::One::one()
    }

    fn to_text(&self, _precision: Option<usize>) -> String {
        self.to_string()
    }

    fn from_text(text: &str) -> Option<Self> {
        // Not Ratio's own reader: it overflows on a denominator with a sign.
        let (numerator, denominator) = match text.split_once('/') {
            Some((numerator, denominator)) => (numerator.parse().ok()?, denominator.parse().ok()?),
            None => (text.parse().ok()?, I::one()),
        };
        (denominator > I::zero()).then(|| Self::new(numerator, denominator))
    }
}
