//! Multivectors: elements of a Clifford algebra. One file per family of operations.

mod access;
mod construct;
mod convert;
mod decomposition;
mod duality;
mod exponential;
mod functions;
mod grade;
mod inverse;
mod involution;
mod linear;
mod logarithm;
mod norm;
mod operators;
pub(crate) mod product;
mod spin;
mod tolerance;
mod versor;

use crate::{CliffordAlgebra, Scalar};
use core::fmt;

/// An element of the algebra `A` with coefficients `T`, one per blade in the order of [`Algebra`](crate::Algebra).
///
/// With a type-level algebra such as [`Cl3`](crate::Cl3) it is an array, `Copy` if `T` is, and has operators: `*`
/// the geometric product, `^` the outer one ([`wedge`](Self::wedge)), `|` the inner one, `&` the regressive one
/// ([`vee`](Self::vee)), `!` the [dual](Self::dual). They bind as on integers, `*` before `+` before `&`, `^` and `|`:
///
/// ```
/// use gradewise_core::{Cl3, Multivector};
///
/// let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
/// let plane = e1 * e2;
/// assert_eq!(plane * plane, Multivector::scalar(-1.0));
/// assert_eq!((e1 + 2.0 * e3).to_string(), "e1 + 2e3");
/// assert_eq!(1.0 + (e1 ^ e2) - (e1 | e1) / 2.0, plane + 0.5);
/// assert_eq!((e1 ^ e3) & (e2 ^ e3), e3);
/// assert_eq!(!e3, e1 ^ e2);
/// assert_eq!(e1.wedge(&e2), plane);
/// ```
///
/// With a run-time [`Algebra`](crate::Algebra) the same methods return a [`Result`](crate::Result), because two
/// multivectors may belong to different algebras (see [`CliffordAlgebra::Checked`]):
///
/// ```
/// use gradewise_core::{Algebra, Signature};
///
/// let spacetime = Algebra::new(Signature::STA)?;
/// let (time, space) = (spacetime.generator::<i64>(0)?, spacetime.generator(1)?);
/// assert_eq!(time.outer_product(&space)?.to_string(), "e12");
/// assert!(time.outer_product(&Algebra::new(Signature::CL3)?.generator(0)?).is_err());
/// # Ok::<(), gradewise_core::Error>(())
/// ```
pub struct Multivector<A: CliffordAlgebra, T: Scalar> {
    algebra: A,
    coefficients: A::Coefficients<T>,
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The algebra this is an element of.
    pub fn algebra(&self) -> &A {
        &self.algebra
    }

    /// The coefficients, one per blade.
    pub fn coefficients(&self) -> &[T] {
        self.coefficients.as_ref()
    }

    /// The coefficients, to be changed.
    pub fn coefficients_mut(&mut self) -> &mut [T] {
        self.coefficients.as_mut()
    }

    /// The coefficients as an array (type-level algebras) or a vector (run-time ones).
    pub fn into_coefficients(self) -> A::Coefficients<T> {
        self.coefficients
    }

    /// Whether every coefficient is zero.
    pub fn is_zero(&self) -> bool {
        self.coefficients().iter().all(T::is_zero)
    }

    /// The coefficient `f(blade)` for each blade, in the algebra of `self`.
    pub(crate) fn build<U: Scalar>(&self, f: impl FnMut(usize) -> U) -> Multivector<A, U> {
        Multivector { algebra: self.algebra.clone(), coefficients: self.algebra.coefficients(f) }
    }

    /// Each coefficient passed through `f` with the bit set of its blade.
    pub(crate) fn map(&self, mut f: impl FnMut(u16, &T) -> T) -> Self {
        let masks = self.algebra.masks();
        self.build(|blade| f(masks[blade], &self.coefficients()[blade]))
    }
}

impl<A: CliffordAlgebra, T: Scalar> Clone for Multivector<A, T> {
    fn clone(&self) -> Self {
        Self { algebra: self.algebra.clone(), coefficients: self.coefficients.clone() }
    }
}

impl<A: CliffordAlgebra + Copy, T: Scalar> Copy for Multivector<A, T> where A::Coefficients<T>: Copy {}

impl<A: CliffordAlgebra, T: Scalar> PartialEq for Multivector<A, T> {
    fn eq(&self, other: &Self) -> bool {
        self.algebra == other.algebra && self.coefficients == other.coefficients
    }
}

impl<A: CliffordAlgebra, T: Scalar> fmt::Debug for Multivector<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.algebra.signature(), self.coefficients())
    }
}
