//! Making multivectors: from an algebra at hand, or from a type-level algebra alone.

use super::Multivector;
use crate::{Algebra, Blade, CliffordAlgebra, Error, Result, Scalar, Shape, TypeLevel};
use alloc::{borrow::ToOwned, string::ToString};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// Zero, in `algebra`.
    pub fn zero_in(algebra: &A) -> Self {
        Self { algebra: algebra.clone(), coefficients: algebra.coefficients(|_| T::zero()) }
    }

    /// `value`, in `algebra`.
    pub fn scalar_in(algebra: &A, value: T) -> Self {
        let mut result = Self::zero_in(algebra);
        if let Some(scalar) = result.coefficients_mut().first_mut() {
            *scalar = value;
        }
        result
    }

    /// `value` times the blade at index `blade`, in `algebra`.
    ///
    /// # Errors
    /// [`Error::Index`] if `algebra` has no such blade.
    pub fn blade_in(algebra: &A, blade: usize, value: T) -> Result<Self> {
        let mut result = Self::zero_in(algebra);
        let count = result.coefficients().len();
        match result.coefficients_mut().get_mut(blade) {
            Some(coefficient) => *coefficient = value,
            None => {
                return Err(Error::Index {
                    operation: "multivector from a blade",
                    argument: "blade",
                    index: blade,
                    count,
                });
            }
        }
        Ok(result)
    }

    /// The vector with `components` along e1..en, in `algebra`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are n components.
    pub fn vector_in(algebra: &A, components: &[T]) -> Result<Self> {
        let dimension = algebra.signature().dimension();
        expect_length("multivector from a vector", "components", components, dimension, "one per generator")?;
        let mut result = Self::zero_in(algebra);
        for (coefficient, component) in result.coefficients_mut().iter_mut().skip(1).zip(components) {
            *coefficient = component.clone();
        }
        Ok(result)
    }

    /// The multivector with the given coefficients, one per blade, in `algebra`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are 2ⁿ coefficients.
    pub fn from_coefficients_in(algebra: &A, coefficients: &[T]) -> Result<Self> {
        let blades = algebra.signature().blade_count();
        expect_length("multivector", "coefficients", coefficients, blades, "one per blade, 2ⁿ")?;
        Ok(Self {
            algebra: algebra.clone(),
            coefficients: algebra.coefficients(|blade| coefficients[blade].clone()),
        })
    }

    /// The pseudoscalar, the blade of all generators, in `algebra`.
    pub fn pseudoscalar_in(algebra: &A) -> Self {
        let mut result = Self::zero_in(algebra);
        if let Some(last) = result.coefficients_mut().last_mut() {
            *last = T::one();
        }
        result
    }
}

fn expect_length<T>(
    operation: &'static str,
    argument: &'static str,
    actual: &[T],
    expected: usize,
    reason: &str,
) -> Result<()> {
    if actual.len() == expected {
        return Ok(());
    }
    Err(Error::Shape {
        operation,
        argument,
        actual: Shape::from([actual.len()]),
        expected: Shape::from([expected]).to_string(),
        reason: reason.to_owned(),
    })
}

impl<A: TypeLevel, T: Scalar> Multivector<A, T> {
    /// The multivector with the given coefficients, one per blade.
    pub const fn new(coefficients: A::Coefficients<T>) -> Self {
        Self { algebra: A::ALGEBRA, coefficients }
    }

    /// Zero.
    pub fn zero() -> Self {
        Self::zero_in(&A::default())
    }

    /// A scalar.
    pub fn scalar(value: T) -> Self {
        Self::scalar_in(&A::default(), value)
    }

    /// The vector with `components` along e1..en. Another number of components does not compile.
    pub fn vector<const N: usize>(components: [T; N]) -> Self {
        const { assert!(N == A::SIGNATURE.dimension(), "one component per generator") };
        let mut result = Self::zero();
        for (coefficient, component) in result.coefficients_mut().iter_mut().skip(1).zip(components) {
            *coefficient = component;
        }
        result
    }

    /// The generators e1..en, to be taken apart: `let [e1, e2, e3] = …`. Another number does not compile.
    pub fn generators<const N: usize>() -> [Self; N] {
        const { assert!(N == A::SIGNATURE.dimension(), "one name per generator") };
        core::array::from_fn(|index| {
            let mut result = Self::zero();
            result.coefficients_mut()[index + 1] = T::one();
            result
        })
    }

    /// The pseudoscalar e12…n.
    pub fn pseudoscalar() -> Self {
        Self::pseudoscalar_in(&A::default())
    }

    /// The multivector with the given coefficients, one per blade.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are 2ⁿ coefficients.
    pub fn from_coefficients(coefficients: &[T]) -> Result<Self> {
        Self::from_coefficients_in(&A::default(), coefficients)
    }
}

/// Making multivectors of a run-time algebra.
impl Algebra {
    /// Zero.
    pub fn zero<T: Scalar>(&self) -> Multivector<Self, T> {
        Multivector::zero_in(self)
    }

    /// A scalar.
    pub fn scalar<T: Scalar>(&self, value: T) -> Multivector<Self, T> {
        Multivector::scalar_in(self, value)
    }

    /// The generator e_{index+1}.
    ///
    /// # Errors
    /// [`Error::Index`] if there are no more than `index` generators.
    pub fn generator<T: Scalar>(&self, index: usize) -> Result<Multivector<Self, T>> {
        let count = self.dimension();
        if index >= count {
            return Err(Error::Index { operation: "generator", argument: "index", index, count });
        }
        Multivector::blade_in(self, index + 1, T::one())
    }

    /// The vector with `components` along e1..en.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are n components.
    pub fn vector<T: Scalar>(&self, components: &[T]) -> Result<Multivector<Self, T>> {
        Multivector::vector_in(self, components)
    }

    /// The multivector with the given coefficients, one per blade.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are 2ⁿ coefficients.
    pub fn multivector<T: Scalar>(&self, coefficients: &[T]) -> Result<Multivector<Self, T>> {
        Multivector::from_coefficients_in(self, coefficients)
    }

    /// The basis blade `blade`.
    ///
    /// ```
    /// use gradewise_core::{Algebra, Blade, Signature};
    ///
    /// let spacetime = Algebra::new(Signature::STA)?;
    /// let plane = spacetime.basis::<i64>(Blade::E12)?;
    /// assert_eq!(plane.geometric_product(&plane)?[Blade::SCALAR], 1);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchBlade`] if a generator of it is beyond this algebra.
    pub fn basis<T: Scalar>(&self, blade: Blade) -> Result<Multivector<Self, T>> {
        Multivector::basis_in(self, blade, T::one())
    }

    /// The pseudoscalar e12…n.
    pub fn pseudoscalar<T: Scalar>(&self) -> Multivector<Self, T> {
        Multivector::pseudoscalar_in(self)
    }
}
