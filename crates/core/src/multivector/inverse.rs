//! Inverses: of versors by their reverse, of anything else by the characteristic polynomial.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Result, Scalar};

fn undefined(reason: &'static str) -> Error {
    Error::Undefined { operation: "inverse", reason }
}

const FRACTIONS: &str = "the inverse has fractions; use rational or floating-point coefficients";

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The inverse x⁻¹, with x x⁻¹ = x⁻¹ x = 1.
    ///
    /// Of a versor (a product of vectors whose square is not zero), and of every other x for which reverse(x) x is a
    /// scalar other than zero, it is reverse(x) / q(x). Of any other element it comes from the characteristic polynomial of
    /// x, exactly for exact coefficients (Shirokov, "On computing the determinant, other characteristic polynomial
    /// coefficients, and inverse in Clifford algebras of arbitrary dimension", 2021).
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector};
    ///
    /// let x: Multivector<Cl3, f64> = "3 + e1 - 2e23 + e123".parse()?;
    /// assert!((x * x.inverse()? - 1.0).norm() < 1e-15);
    /// // Some elements are zero divisors: (1 + e1)(1 − e1) = 0.
    /// assert!("1 + e1".parse::<Multivector<Cl3, f64>>()?.inverse().is_err());
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Undefined`] if there is none: x is zero, null or a zero divisor; if a coefficient of it overflows; or if
    /// the coefficients are integers and the inverse has fractions. For floats a versor counts as null if |q(x)| is at most 2¹²
    /// ulps of the sum of squares that it is the signed sum of, and anything else as a zero divisor if x x⁻¹ cannot be brought
    /// within √ε of 1. Coefficients may be of any size, those of blades with null generators too.
    pub fn inverse(&self) -> Result<Self> {
        let (x, unit) = self.in_binary_units();
        match x.scalar_norm() {
            Some(norm) => x.divided_reverse(&norm, &unit),
            None => self.general_inverse(),
        }
    }

    /// The inverse of a versor, reverse(x) / q(x), or why x is none.
    pub(crate) fn versor_inverse(&self) -> Result<Self> {
        let (x, unit) = self.in_binary_units();
        let norm =
            x.scalar_norm().ok_or_else(|| undefined("reverse(x) x is not a scalar, so x is not a versor"))?;
        x.divided_reverse(&norm, &unit)
    }

    /// reverse(x) / `norm` / `unit`.
    fn divided_reverse(&self, norm: &T, unit: &T) -> Result<Self> {
        if norm.is_zero() || norm.is_negligible(&self.squared_size()) {
            return Err(undefined("reverse(x) x is zero: x is a null versor"));
        }
        let mut inverse = self.reverse();
        for coefficient in inverse.coefficients_mut() {
            *coefficient = coefficient.quotient(norm).ok_or_else(|| undefined(FRACTIONS))? / unit.clone();
        }
        inverse.or_overflow()
    }

    /// This, unless a coefficient is not finite.
    fn or_overflow(self) -> Result<Self> {
        if self.is_finite() {
            Ok(self)
        } else {
            Err(undefined("a coefficient of x is not finite, or one of its inverse overflows"))
        }
    }

    /// By Faddeev and LeVerrier: x satisfies a polynomial of degree N = 2^⌈n/2⌉, whose coefficients are
    /// cₖ = (N / k) ⟨xₖ⟩₀ with x₁ = x and xₖ₊₁ = x (xₖ − cₖ). Then x (x_{N−1} − c_{N−1}) = c_N.
    fn general_inverse(&self) -> Result<Self> {
        // Floats of the order of 1, so that no power overflows; and null generators scaled likewise, which changes nothing
        // but keeps them from being compared with the others.
        let (x, unit) = self.in_binary_units();
        let length = x.unit_of_length();
        let x = x.with_null_generators_scaled(&(T::one() / length.clone()));
        let degree = 1u32 << self.algebra.signature().dimension().div_ceil(2);
        let number = |count: u32| (0..count).fold(T::zero(), |sum, _| sum + T::one());
        let mut power = x.clone();
        let mut previous = Self::scalar_in(&self.algebra, T::one());
        for k in 1..=degree {
            let multiple = power.scalar_part() * number(degree);
            let coefficient = multiple.quotient(&number(k)).ok_or_else(|| undefined(FRACTIONS))?;
            if k == degree {
                let inverse = self.divided_adjugate(&x, previous, &coefficient)?;
                let inverse = inverse.with_null_generators_scaled(&length);
                return inverse.map(|_, c| c.clone() / unit.clone()).or_overflow();
            }
            previous = power;
            if let Some(scalar) = previous.coefficients_mut().first_mut() {
                *scalar -= coefficient;
            }
            power = x.times(&previous);
        }
        Err(undefined("an algebra has a degree of at least one"))
    }

    /// adjugate / determinant; for floats, refined to recover the digits that the powers lost.
    fn divided_adjugate(&self, x: &Self, adjugate: Self, determinant: &T) -> Result<Self> {
        let refused = "the determinant is zero or not finite: x divides zero, or a coefficient is not finite";
        let mut inverse = adjugate;
        if determinant.is_zero() {
            return Err(undefined(refused));
        }
        for coefficient in inverse.coefficients_mut() {
            *coefficient = coefficient.quotient(determinant).ok_or_else(|| undefined(FRACTIONS))?;
        }
        if T::EXACT {
            return Ok(inverse);
        }
        // y ← y + y (1 − x y) doubles the digits, if there are some to begin with.
        let error = |inverse: &Self| {
            let product = x.times(inverse);
            Self::scalar_in(&self.algebra, T::one()).difference(&product)
        };
        let mut last = error(&inverse);
        for _ in 0..4 {
            let better = inverse.sum(&inverse.times(&last));
            let rest = error(&better);
            if rest.is_finite() && rest.size() < last.size() {
                (inverse, last) = (better, rest);
            } else {
                break;
            }
        }
        // If x is singular up to rounding, x y stays far from 1.
        let size = last.size();
        if !(size.clone() * size).is_negligible(&T::one()) || !last.is_finite() {
            return Err(undefined(refused));
        }
        Ok(inverse)
    }
}
