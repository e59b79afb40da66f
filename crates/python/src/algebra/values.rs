//! The classes of values, and what is either of them.

use gradewise_core::{Algebra, Multivector, Rotor};
use pyo3::prelude::*;

pub type Mv = Multivector<Algebra, f64>;
pub type R = Rotor<Algebra, f64>;

/// A multivector: a sum of blades of an algebra.
///
/// ``x * y`` is the geometric product, ``x ^ y`` the outer, ``x | y`` the inner, ``x & y`` the regressive one, ``x << y`` and ``x >> y``
/// the contractions, ``x @ y`` what the versor x makes of y (:meth:`sandwich`), ``~x`` the reverse, ``x / y`` the product with the inverse.
/// Numbers serve as scalars, also to ``|``. ``x["e12"]`` is a coefficient, ``x[2]`` the part of grade 2.
///
/// Raises:
///     ArgumentError: operands of different algebras; an operation without a result for its operands.
#[pyclass(frozen, name = "Multivector", module = "gradewise", mapping)]
#[derive(Clone)]
pub struct PyMultivector(pub(crate) Mv);

/// The other operand of an operator.
#[derive(FromPyObject)]
pub enum Operand<'py> {
    Multivector(Bound<'py, PyMultivector>),
    Rotor(Bound<'py, PyRotor>),
    Number(f64),
}

impl Operand<'_> {
    /// As a multivector; a number becomes a scalar of `algebra`.
    pub fn value(&self, algebra: &Algebra) -> Mv {
        match self {
            Self::Multivector(value) => value.get().0.clone(),
            Self::Rotor(value) => value.get().0.as_multivector().clone(),
            Self::Number(value) => algebra.scalar(*value),
        }
    }
}

/// A rotor: a rotation, a boost, or in projective algebras a motion (a motor). It acts by R x reverse(R).
///
/// ``r @ x``, ``r(x)`` and ``r.apply(x)`` move a multivector, ``r * s`` acts as s and then as r, ``~r`` undoes r, ``r ** t`` is a fraction of it.
///
/// Made of a multivector, or by ``Algebra.rotor``, ``Algebra.rotor_between`` and ``Algebra.translator``.
///
/// Raises:
///     ArgumentError: the multivector is not even, or reverse(R) R is not 1.
#[pyclass(frozen, name = "Rotor", module = "gradewise")]
#[derive(Clone)]
pub struct PyRotor(pub(crate) R);
