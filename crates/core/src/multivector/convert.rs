//! Multivectors as the standard library and `num-traits` know numbers: conversions, zero and one, hashes, constants.

use super::Multivector;
use crate::{Blade, CliffordAlgebra, Scalar, TypeLevel};
use core::hash::{Hash, Hasher};
use num_traits::{ConstOne, ConstZero, One, Zero};

/// The coefficients, one for each blade in the order of [`Algebra`](crate::Algebra). Another number does not compile.
///
/// ```
/// use gradewise_core::{Cl2, Multivector};
///
/// let mv = Multivector::<Cl2, f64>::from([1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(mv.to_string(), "1 + 2e1 + 3e2 + 4e12");
/// let back: [f64; 4] = mv.into();
/// assert_eq!(back, [1.0, 2.0, 3.0, 4.0]);
/// ```
impl<A, T, const N: usize> From<[T; N]> for Multivector<A, T>
where
    A: TypeLevel + CliffordAlgebra<Coefficients<T> = [T; N]>,
    T: Scalar,
{
    #[inline]
    fn from(coefficients: [T; N]) -> Self {
        Self::new(coefficients)
    }
}

impl<A, T, const N: usize> From<Multivector<A, T>> for [T; N]
where
    A: TypeLevel + CliffordAlgebra<Coefficients<T> = [T; N]>,
    T: Scalar,
{
    #[inline]
    fn from(multivector: Multivector<A, T>) -> Self {
        multivector.into_coefficients()
    }
}

/// A scalar.
impl<A: TypeLevel, T: Scalar> From<T> for Multivector<A, T> {
    #[inline]
    fn from(value: T) -> Self {
        Self::scalar(value)
    }
}

/// Zero.
impl<A: TypeLevel, T: Scalar> Default for Multivector<A, T> {
    #[inline]
    fn default() -> Self {
        Self::zero()
    }
}

impl<A: TypeLevel, T: Scalar> Zero for Multivector<A, T> {
    #[inline]
    fn zero() -> Self {
        Self::scalar(T::zero())
    }

    #[inline]
    fn is_zero(&self) -> bool {
        Multivector::is_zero(self)
    }
}

impl<A: TypeLevel, T: Scalar> One for Multivector<A, T> {
    #[inline]
    fn one() -> Self {
        Self::scalar(T::one())
    }
}

/// Constants, for coefficients that have some: floats and integers.
///
/// ```
/// use gradewise_core::{Blade, Cl3, Multivector};
///
/// const ORIGIN: Multivector<Cl3, f64> = Multivector::ZERO;
/// const PLANE: Multivector<Cl3, f64> = Multivector::basis(Blade::E12);
/// const X: Multivector<Cl3, f64> = Multivector::new([1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
/// assert_eq!(PLANE * PLANE + ORIGIN, -Multivector::ONE);
/// assert_eq!(X.e1(), 2.0);
/// ```
impl<A, T, const N: usize> Multivector<A, T>
where
    A: TypeLevel + CliffordAlgebra<Coefficients<T> = [T; N]>,
    T: Scalar + ConstZero + ConstOne + Copy,
{
    /// Zero.
    pub const ZERO: Self = Self::new([T::ZERO; N]);

    /// The scalar 1.
    pub const ONE: Self = Self::basis(Blade::SCALAR);

    /// The basis blade `blade`.
    ///
    /// # Panics
    /// If the algebra has no such blade: at compile time in a constant. [`basis_in`](Self::basis_in) is fallible.
    pub const fn basis(blade: Blade) -> Self {
        assert!(blade.dimension() <= A::SIGNATURE.dimension(), "the algebra has no such blade");
        let mut coefficients = [T::ZERO; N];
        coefficients[crate::blade::position(blade.mask(), A::SIGNATURE.dimension())] = T::ONE;
        Self::new(coefficients)
    }
}

impl<A, T, const N: usize> ConstZero for Multivector<A, T>
where
    A: TypeLevel + CliffordAlgebra<Coefficients<T> = [T; N]>,
    T: Scalar + ConstZero + ConstOne + Copy,
{
    const ZERO: Self = Self::ZERO;
}

impl<A, T, const N: usize> ConstOne for Multivector<A, T>
where
    A: TypeLevel + CliffordAlgebra<Coefficients<T> = [T; N]>,
    T: Scalar + ConstZero + ConstOne + Copy,
{
    const ONE: Self = Self::ONE;
}

impl<A: CliffordAlgebra, T: Scalar + Eq> Eq for Multivector<A, T> {}

/// For exact coefficients, integers and ratios: floats have no `Hash`.
///
/// ```
/// use gradewise_core::{Cl2, Multivector};
/// use std::collections::HashSet;
///
/// let [e1, e2] = Multivector::<Cl2, i64>::generators();
/// let group: HashSet<_> = [e1 * e1, e1, e2, e1 * e2, e1 * e2 * e1 * e2, e2 * e2].into();
/// assert_eq!(group.len(), 5);
/// ```
impl<A: CliffordAlgebra, T: Scalar + Hash> Hash for Multivector<A, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.algebra.signature().hash(state);
        self.coefficients().hash(state);
    }
}
