//! Multivectors.

use super::{
    PyAlgebra,
    display::{Markup, sum},
    fail,
    values::{Mv, Operand, PyMultivector},
};
use crate::errors::Class;
use gradewise_core::{Error, Multivector, Pga3, Signature, pga3};
use pyo3::{
    exceptions::{PyIndexError, PyKeyError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyTuple},
};
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

impl PyMultivector {
    fn binary(
        &self,
        py: Python<'_>,
        other: &Operand<'_>,
        operation: impl FnOnce(&Mv, &Mv) -> gradewise_core::Result<Mv>,
    ) -> PyResult<Self> {
        operation(&self.0, &other.value(self.0.algebra())).map(Self).map_err(|error| fail(py, error))
    }

    /// As [`binary`](Self::binary) with `self` on the right.
    fn reflected(
        &self,
        py: Python<'_>,
        other: &Operand<'_>,
        operation: impl FnOnce(&Mv, &Mv) -> gradewise_core::Result<Mv>,
    ) -> PyResult<Self> {
        self.binary(py, other, |right, left| operation(left, right))
    }

    fn result(py: Python<'_>, value: gradewise_core::Result<Mv>) -> PyResult<Self> {
        value.map(Self).map_err(|error| fail(py, error))
    }
}

fn quotient(a: &Mv, b: &Mv) -> gradewise_core::Result<Mv> {
    a.geometric_product(&b.inverse()?)
}

#[pymethods]
impl PyMultivector {
    /// The algebra.
    #[getter]
    fn algebra(&self) -> PyAlgebra {
        PyAlgebra(self.0.algebra().clone())
    }

    /// The 2ⁿ coefficients, in the order of ``algebra.blades``.
    #[getter]
    fn coefficients<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.coefficients())
    }

    /// The coefficient of the scalar.
    #[getter]
    fn scalar_part(&self) -> f64 {
        self.0.scalar_part()
    }

    /// The n components of the vector part.
    #[getter]
    fn vector_part<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.vector_part())
    }

    /// The grades with a coefficient other than zero, ascending.
    #[getter]
    fn grades<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.grades())
    }

    /// The part of a grade; zero beyond n.
    fn grade(&self, grade: usize) -> Self {
        Self(self.0.grade(grade))
    }

    /// The part of even grades.
    fn even(&self) -> Self {
        Self(self.0.even_part())
    }

    /// The part of odd grades.
    fn odd(&self) -> Self {
        Self(self.0.odd_part())
    }

    /// The reverse: the order of all factors turned around. ``~x``.
    fn reverse(&self) -> Self {
        Self(self.0.reverse())
    }

    /// The grade involution: every vector negated.
    fn involution(&self) -> Self {
        Self(self.0.involution())
    }

    /// The Clifford conjugate: the reverse of the involution.
    fn conjugate(&self) -> Self {
        Self(self.0.conjugate())
    }

    /// The dual, the right complement: x ^ dual(x) is the pseudoscalar for each blade x. Independent of the metric.
    fn dual(&self) -> Self {
        Self(self.0.dual())
    }

    /// The inverse of ``dual``, the left complement.
    fn undual(&self) -> Self {
        Self(self.0.undual())
    }

    /// The Hodge star, reverse(x) times the pseudoscalar.
    fn hodge_star(&self) -> Self {
        Self(self.0.hodge_star())
    }

    /// √|⟨reverse(x) x⟩₀|; zero for null elements.
    fn norm(&self) -> f64 {
        self.0.norm()
    }

    /// ⟨reverse(x) x⟩₀ with its sign.
    fn squared_norm(&self) -> f64 {
        self.0.squared_norm()
    }

    /// x divided by its norm.
    ///
    /// Raises:
    ///     ArgumentError: the norm is zero or not finite.
    fn normalized(&self, py: Python<'_>) -> PyResult<Self> {
        Self::result(py, self.0.normalized())
    }

    /// The inverse: of a versor reverse(x) divided by the squared norm, of other elements by their characteristic polynomial.
    ///
    /// Raises:
    ///     ArgumentError: x is a zero divisor, such as ``1 + e1`` where e1 squares to 1, or is not finite.
    fn inverse(&self, py: Python<'_>) -> PyResult<Self> {
        Self::result(py, self.0.inverse())
    }

    /// The exponential of a bivector, whether it turns in one plane or in several at once.
    ///
    /// Raises:
    ///     ArgumentError: not a bivector, or not finite.
    fn exp(&self, py: Python<'_>) -> PyResult<Self> {
        Self::result(py, self.0.exp())
    }

    /// The logarithm of a rotor, a bivector.
    ///
    /// Raises:
    ///     ArgumentError: not a rotor (even, ``~R * R == 1``), a rotor in six dimensions whose planes cannot be told apart, or
    ///         minus a boost or translation, which no bivector has as exponential (``-R`` moves everything as R does).
    fn log(&self, py: Python<'_>) -> PyResult<Self> {
        Self::result(py, self.0.log())
    }

    /// The action of the versor x on y: x y x⁻¹, with the grade involution of y if x is odd, so that a vector reflects.
    ///
    /// Raises:
    ///     ArgumentError: x has no inverse, or even and odd parts.
    fn sandwich(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::sandwich)
    }

    /// As ``sandwich``.
    fn apply(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.sandwich(py, y)
    }

    /// The reflection of x in the hyperplane perpendicular to a vector.
    ///
    /// Raises:
    ///     ArgumentError: `normal` is not a vector, or its square is zero.
    fn reflected_in(&self, py: Python<'_>, normal: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &normal, Mv::reflected)
    }

    /// The outer product, ``x ^ y``.
    fn outer(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::outer_product)
    }

    /// The inner product, ``x | y``: the terms of grade |r − s| of grades r and s.
    fn inner(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::inner_product)
    }

    /// The left contraction, ``x << y``: the terms of grade s − r of grades r and s.
    fn left_contraction(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::left_contraction)
    }

    /// The right contraction, ``x >> y``: the terms of grade r − s of grades r and s.
    fn right_contraction(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::right_contraction)
    }

    /// The regressive product, ``x & y``: dual(x & y) = dual(x) ^ dual(y), the join of points in projective algebras.
    fn regressive(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::regressive_product)
    }

    /// The commutator product ½ (x y − y x).
    fn commutator(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &y, Mv::commutator_product)
    }

    /// The scalar product ⟨x y⟩₀ as a number.
    fn scalar_product(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<f64> {
        self.0.scalar_product(&y.value(self.0.algebra())).map_err(|error| fail(py, error))
    }

    /// In Cl(3,0,1) the coordinates (x, y, z) of a point of any weight.
    ///
    /// Raises:
    ///     ArgumentError: another algebra; a point at infinity.
    fn coordinates(&self, py: Python<'_>) -> PyResult<(f64, f64, f64)> {
        let signature = self.0.algebra().signature();
        if signature != Signature::PGA3 {
            let message = format!("points are of Cl(3,0,1), and this is of {signature}");
            return Err(Class::Argument.exception(py, &message));
        }
        let point = Multivector::<Pga3, f64>::from_coefficients(self.0.coefficients());
        let [x, y, z] = point.and_then(|point| pga3::coordinates(&point)).map_err(|error| fail(py, error))?;
        Ok((x, y, z))
    }

    /// Whether all coefficients agree with those of `other` within `rtol` times the largest coefficient of both, plus `atol`.
    #[pyo3(signature = (other, rtol=1e-9, atol=0.0))]
    fn isclose(&self, py: Python<'_>, other: Operand<'_>, rtol: f64, atol: f64) -> PyResult<bool> {
        let other = other.value(self.0.algebra());
        let difference = self.0.minus(&other).map_err(|error| fail(py, error))?;
        let largest = |x: &Mv| x.coefficients().iter().fold(0.0f64, |most, c| most.max(c.abs()));
        let bound = atol + rtol * largest(&self.0).max(largest(&other));
        Ok(difference.coefficients().iter().all(|c| c.abs() <= bound))
    }

    /// The coefficients as an array of NumPy, float64 [2ⁿ].
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("array", (self.coefficients(py)?, "float64"))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("the coefficients of a multivector become an array by a copy"));
        }
        let array = self.numpy(py)?;
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    /// Lets `numpy.float64(2) * x` be a multivector.
    #[classattr]
    fn __array_ufunc__(py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    fn __add__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &other, Mv::plus)
    }

    fn __radd__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::plus)
    }

    fn __sub__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.binary(py, &other, Mv::minus)
    }

    fn __rsub__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::minus)
    }

    fn __mul__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        match other {
            Operand::Number(factor) => Ok(Self(self.0.scaled(&factor))),
            other => self.binary(py, &other, Mv::geometric_product),
        }
    }

    fn __rmul__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        match other {
            Operand::Number(factor) => Ok(Self(self.0.scaled(&factor))),
            other => self.reflected(py, &other, Mv::geometric_product),
        }
    }

    fn __truediv__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        match other {
            Operand::Number(0.0) => {
                let (operation, reason) = ("quotient", "the divisor is zero");
                Err(fail(py, Error::Undefined { operation, reason }))
            }
            Operand::Number(divisor) => Ok(Self(self.0.clone() / divisor)),
            other => self.binary(py, &other, quotient),
        }
    }

    fn __rtruediv__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, quotient)
    }

    fn __xor__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.outer(py, other)
    }

    fn __rxor__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::outer_product)
    }

    fn __or__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.inner(py, other)
    }

    fn __ror__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::inner_product)
    }

    fn __and__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.regressive(py, other)
    }

    fn __rand__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::regressive_product)
    }

    fn __lshift__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.left_contraction(py, other)
    }

    fn __rlshift__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::left_contraction)
    }

    fn __rshift__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.right_contraction(py, other)
    }

    /// As ``sandwich``: ``x @ y`` is what the versor x makes of y.
    fn __matmul__(&self, py: Python<'_>, y: Operand<'_>) -> PyResult<Self> {
        self.sandwich(py, y)
    }

    fn __rrshift__(&self, py: Python<'_>, other: Operand<'_>) -> PyResult<Self> {
        self.reflected(py, &other, Mv::right_contraction)
    }

    /// Whole powers; negative ones of the inverse.
    fn __pow__(&self, py: Python<'_>, exponent: i32, modulus: Option<Bound<'_, PyAny>>) -> PyResult<Self> {
        if modulus.is_some() {
            return Err(PyTypeError::new_err("powers of multivectors take no modulus"));
        }
        let base =
            if exponent < 0 { self.0.inverse().map_err(|error| fail(py, error))? } else { self.0.clone() };
        let (mut power, mut square, mut left) = (base.algebra().scalar(1.0), base, exponent.unsigned_abs());
        while left > 0 {
            if left & 1 == 1 {
                power = power.geometric_product(&square).map_err(|error| fail(py, error))?;
            }
            left >>= 1;
            if left > 0 {
                square = square.geometric_product(&square).map_err(|error| fail(py, error))?;
            }
        }
        Ok(Self(power))
    }

    fn __neg__(&self) -> Self {
        Self(-&self.0)
    }

    fn __pos__(&self) -> Self {
        self.clone()
    }

    fn __invert__(&self) -> Self {
        self.reverse()
    }

    fn __abs__(&self) -> f64 {
        self.norm()
    }

    fn __bool__(&self) -> bool {
        !self.0.is_zero()
    }

    /// The coefficient of a blade by its name, or the part of a grade.
    ///
    /// Raises:
    ///     KeyError: there is no such blade.
    ///     IndexError: there is no such grade.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let algebra = self.algebra();
        if let Ok(name) = key.extract::<String>() {
            let (blade, sign) =
                algebra.named(&name).ok_or_else(|| PyKeyError::new_err(algebra.unknown(&name)))?;
            return Ok((sign * self.0.coefficients()[blade]).into_pyobject(py)?.into_any());
        }
        let missing = || {
            let message = format!("{} has grades 0 to {}", algebra.0.signature(), algebra.0.dimension());
            PyIndexError::new_err(message)
        };
        let Ok(grade) = key.extract::<i64>() else {
            let message = "multivectors are indexed by the name of a blade, or by a grade";
            return Err(PyTypeError::new_err(message));
        };
        let grade = usize::try_from(grade).ok().filter(|&grade| grade <= algebra.0.dimension());
        let part = self.grade(grade.ok_or_else(missing)?);
        Ok(part.into_pyobject(py)?.into_any())
    }

    /// Exactly the same coefficients in the same algebra; a number equals that scalar.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.extract::<Operand<'_>>().is_ok_and(|other| self.0 == other.value(self.0.algebra()))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let coefficients = self.0.coefficients();
        if coefficients.iter().skip(1).all(|c| *c == 0.0) {
            // The hash of the number that it equals.
            return self.0.scalar_part().into_pyobject(py)?.hash();
        }
        let mut hasher = DefaultHasher::new();
        self.0.algebra().signature().hash(&mut hasher);
        // −0 equals 0.
        coefficients.iter().for_each(|c| (c + 0.0).to_bits().hash(&mut hasher));
        Ok(hasher.finish() as isize)
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    /// The sum of blades, in notebooks.
    fn _repr_html_(&self) -> String {
        sum(&self.0, Markup::Html)
    }

    /// The sum of blades, in LaTeX.
    fn _repr_latex_(&self) -> String {
        format!("${}$", sum(&self.0, Markup::Latex))
    }

    /// A precision, as in ``f"{x:.3}"``, applies to each coefficient.
    fn __format__(&self, specification: &str) -> PyResult<String> {
        if specification.is_empty() {
            return Ok(self.0.to_string());
        }
        let digits = specification.strip_prefix('.').map(|rest| rest.strip_suffix('f').unwrap_or(rest));
        match digits.and_then(|digits| digits.parse::<u16>().ok()) {
            Some(digits) => Ok(format!("{:.*}", usize::from(digits), self.0)),
            None => Err(PyValueError::new_err(format!(
                "`{specification}` is no format of multivectors; write a precision such as `.3`"
            ))),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        let algebra = Bound::new(py, self.algebra())?;
        Ok((algebra.getattr("multivector")?, (self.coefficients(py)?,)))
    }

    /// Coefficients other than zero by the names of their blades.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        for (blade, value) in self.0.coefficients().iter().enumerate().filter(|(_, value)| **value != 0.0) {
            result.set_item(self.0.algebra().blade_name(blade), value)?;
        }
        Ok(result)
    }
}
