//! Rotors and motors.

use super::{
    PyAlgebra,
    display::{Markup, sum},
    fail,
    values::{PyMultivector, PyRotor, R},
};
use gradewise_core::Rotor;
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyTuple};

/// The right operand of `*`.
#[derive(FromPyObject)]
enum Factor<'py> {
    Rotor(Bound<'py, PyRotor>),
    Multivector(Bound<'py, PyMultivector>),
    Number(f64),
}

impl PyRotor {
    pub fn of(py: Python<'_>, rotor: gradewise_core::Result<R>) -> PyResult<Self> {
        rotor.map(Self).map_err(|error| fail(py, error))
    }
}

#[pymethods]
impl PyRotor {
    #[new]
    fn new(py: Python<'_>, multivector: &Bound<'_, PyMultivector>) -> PyResult<Self> {
        Self::of(py, Rotor::new(multivector.get().0.clone()))
    }

    /// The algebra.
    #[getter]
    fn algebra(&self) -> PyAlgebra {
        PyAlgebra(self.0.as_multivector().algebra().clone())
    }

    /// The rotor as a multivector.
    #[getter]
    fn multivector(&self) -> PyMultivector {
        PyMultivector(self.0.as_multivector().clone())
    }

    /// R x reverse(R), in the grades that x has.
    ///
    /// Raises:
    ///     ArgumentError: x is of another algebra.
    fn apply(&self, py: Python<'_>, x: &Bound<'_, PyMultivector>) -> PyResult<PyMultivector> {
        self.0.apply(&x.get().0).map(PyMultivector).map_err(|error| fail(py, error))
    }

    /// ``r @ x`` is ``r.apply(x)``.
    fn __matmul__(&self, py: Python<'_>, x: &Bound<'_, PyMultivector>) -> PyResult<PyMultivector> {
        self.apply(py, x)
    }

    fn __call__(&self, py: Python<'_>, x: &Bound<'_, PyMultivector>) -> PyResult<PyMultivector> {
        self.apply(py, x)
    }

    /// The rotor that undoes this one, its reverse. ``~r``.
    fn inverse(&self) -> Self {
        Self(self.0.inverse())
    }

    /// A bivector B with exp(B) = R.
    ///
    /// Raises:
    ///     ArgumentError: there is none, as for minus a boost.
    fn log(&self, py: Python<'_>) -> PyResult<PyMultivector> {
        self.0.log().map(PyMultivector).map_err(|error| fail(py, error))
    }

    /// The interpolation from this rotor (t = 0) to another (t = 1), at constant speed and the shorter way:
    /// ``(other * ~self) ** t * self`` with the sign of other with which it turns less. Other and minus other move everything alike, and are
    /// taken as one.
    ///
    /// Raises:
    ///     ArgumentError: rotors of different algebras; no motion at constant speed leads from one to the other.
    fn slerp(&self, py: Python<'_>, other: &Bound<'_, Self>, t: f64) -> PyResult<Self> {
        Self::of(py, self.0.slerp(&other.get().0, t))
    }

    /// This rotor with its norm corrected for the rounding errors of many products.
    fn renormalized(&self, py: Python<'_>) -> PyResult<Self> {
        Self::of(py, self.0.renormalized())
    }

    fn __mul__<'py>(&self, py: Python<'py>, other: Factor<'py>) -> PyResult<Bound<'py, PyAny>> {
        match other {
            Factor::Rotor(first) => {
                Ok(Bound::new(py, Self::of(py, self.0.after(&first.get().0))?)?.into_any())
            }
            Factor::Multivector(right) => {
                let product = self.0.as_multivector().geometric_product(&right.get().0);
                let product = product.map(PyMultivector).map_err(|error| fail(py, error))?;
                Ok(Bound::new(py, product)?.into_any())
            }
            Factor::Number(factor) => {
                let scaled = PyMultivector(self.0.as_multivector().scaled(&factor));
                Ok(Bound::new(py, scaled)?.into_any())
            }
        }
    }

    fn __rmul__(&self, factor: f64) -> PyMultivector {
        PyMultivector(self.0.as_multivector().scaled(&factor))
    }

    fn __pow__(&self, py: Python<'_>, exponent: f64, modulus: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        if modulus.is_some() {
            return Err(PyTypeError::new_err("powers of rotors take no modulus"));
        }
        Self::of(py, self.0.powf(exponent))
    }

    fn __invert__(&self) -> Self {
        self.inverse()
    }

    /// Exactly the same coefficients in the same algebra. R and −R move everything alike and are not equal.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        Bound::new(py, self.multivector())?.hash()
    }

    fn __repr__(&self) -> String {
        format!("Rotor({})", self.0)
    }

    /// The multivector, in notebooks.
    fn _repr_html_(&self) -> String {
        sum(self.0.as_multivector(), Markup::Html)
    }

    /// The multivector, in LaTeX.
    fn _repr_latex_(&self) -> String {
        format!("${}$", sum(self.0.as_multivector(), Markup::Latex))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let multivector = slf.get().multivector();
        Ok((slf.get_type().into_any(), PyTuple::new(slf.py(), [multivector])?))
    }
}
