//! Algebras, multivectors and rotors for interactive use: those of `gradewise-core` with a run-time signature, in f64.

mod display;
mod multivector;
mod rotor;
mod values;

use crate::errors::{Class, raised};
use gradewise_core::{Algebra, MAX_DIMENSION, Multivector, Pga3, Signature, pga3};
use pyo3::{
    exceptions::{PyAttributeError, PyKeyError},
    prelude::*,
    types::{PyDict, PyTuple},
};
use std::{
    collections::hash_map::DefaultHasher,
    fmt::Write,
    hash::{Hash, Hasher},
};

pub use values::{PyMultivector, PyRotor};

/// Raises an error of the algebra.
fn fail(py: Python<'_>, error: gradewise_core::Error) -> PyErr {
    raised(py, gradewise_kernels::Error::from(error))
}

/// The Clifford algebra of a signature: of its generators e1, e2, …, the first p square to +1, the next q to −1, the last r to 0.
///
/// ``Algebra(3, 0, 1)``, ``Algebra((3, 0, 1))`` and ``Algebra("3,0,1")`` are the same; numbers left out are 0. Its blades are attributes,
/// such as ``algebra.e1`` and ``algebra.e12``, ordered by grade and then lexicographically. Where a single generator squares to 0, as in
/// projective algebras, ``e0`` is another name of it: in Cl(3,0,1) ``e0`` is ``e4``, and ``e01`` is ``e41``, which is ``-e14``.
///
/// Raises:
///     ArgumentError: more than 8 generators, or not a signature.
#[pyclass(frozen, name = "Algebra", module = "gradewise")]
#[derive(Clone)]
pub struct PyAlgebra(pub(crate) Algebra);

/// What can become a multivector.
#[derive(FromPyObject)]
enum Source<'py> {
    Multivector(Bound<'py, PyMultivector>),
    Rotor(Bound<'py, PyRotor>),
    Number(f64),
    Text(String),
    Blades(Bound<'py, PyDict>),
    Coefficients(Vec<f64>),
}

impl PyAlgebra {
    fn of(
        &self,
        py: Python<'_>,
        value: gradewise_core::Result<Multivector<Algebra, f64>>,
    ) -> PyResult<PyMultivector> {
        value.map(PyMultivector).map_err(|error| fail(py, error))
    }

    /// The blade of a name and the sign that the order of its generators gives it: "e21" is −e12.
    fn named(&self, name: &str) -> Option<(usize, f64)> {
        if name == "1" {
            return Some((0, 1.0));
        }
        let digits = name.strip_prefix('e').filter(|digits| !digits.is_empty())?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        // The null generator of a projective algebra is the last one here, and e0 in the literature.
        let name = match self.0.signature().r {
            1 => name.replace('0', &self.0.dimension().to_string()),
            _ => name.to_owned(),
        };
        let blade: Multivector<Algebra, f64> = self.0.parse(&name).ok()?;
        blade.coefficients().iter().position(|c| *c != 0.0).map(|index| (index, blade.coefficients()[index]))
    }

    fn unknown(&self, name: &str) -> String {
        format!(
            "{} has no blade `{name}`; its generators are e1 to e{}{}",
            self.0.signature(),
            self.0.dimension(),
            if self.0.signature().r == 1 { ", of which the last is e0, too" } else { "" }
        )
    }

    /// A multivector of projective geometric algebra, Cl(3,0,1); an error in any other algebra.
    fn projective(
        &self,
        py: Python<'_>,
        what: &str,
        value: Multivector<Pga3, f64>,
    ) -> PyResult<PyMultivector> {
        self.require_projective(py, what)?;
        self.of(py, self.0.multivector(&value.into_coefficients()))
    }

    fn require_projective(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.0.signature() == Signature::PGA3 {
            return Ok(());
        }
        let message = format!(
            "{what} is of Cl(3,0,1), projective geometric algebra, and this is {}",
            self.0.signature()
        );
        Err(Class::Argument.exception(py, &message))
    }
}

/// An algebra's signature from numbers, a tuple of numbers, or text.
fn signature(arguments: &Bound<'_, PyTuple>) -> PyResult<Signature> {
    let py = arguments.py();
    let refuse = || {
        let text = format!("{arguments} is not a signature; write p, q and r, such as Algebra(3, 0, 1)");
        Class::Argument.exception(py, &text)
    };
    if let Ok((text,)) = arguments.extract::<(String,)>() {
        return text.parse().map_err(|error| fail(py, error));
    }
    let numbers: Vec<u8> = match arguments.extract::<(Vec<u8>,)>() {
        Ok((numbers,)) => numbers,
        Err(_) => arguments.iter().map(|n| n.extract()).collect::<PyResult<_>>().map_err(|_| refuse())?,
    };
    match numbers[..] {
        [p] => Ok(Signature::new(p, 0, 0)),
        [p, q] => Ok(Signature::new(p, q, 0)),
        [p, q, r] => Ok(Signature::new(p, q, r)),
        _ => Err(refuse()),
    }
}

#[pymethods]
impl PyAlgebra {
    #[new]
    #[pyo3(signature = (*signature))]
    fn new(signature: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let py = signature.py();
        Algebra::new(self::signature(signature)?).map(Self).map_err(|error| fail(py, error))
    }

    /// (p, q, r).
    #[getter]
    fn signature(&self) -> (u8, u8, u8) {
        let Signature { p, q, r } = self.0.signature();
        (p, q, r)
    }

    /// The number of generators, n = p + q + r.
    #[getter]
    fn dimension(&self) -> usize {
        self.0.dimension()
    }

    /// The names of the 2ⁿ blades in order: "1", "e1", …
    #[getter]
    fn blades<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let names: Vec<String> = (0..self.0.blade_count()).map(|blade| self.0.blade_name(blade)).collect();
        PyTuple::new(py, names)
    }

    /// The grade of each blade, ascending.
    #[getter]
    fn grades<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.grades())
    }

    /// The generators (e1, …, en).
    #[getter]
    fn generators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let generators = (0..self.0.dimension()).map(|index| self.of(py, self.0.generator(index)));
        PyTuple::new(py, generators.collect::<PyResult<Vec<_>>>()?)
    }

    /// The paths of grades (left, result, right) along which the geometric product has terms, in the order of the weights of weighted
    /// products.
    #[getter]
    fn paths(&self) -> Vec<(u8, u8, u8)> {
        self.0.paths().iter().map(|path| (path.left, path.out, path.right)).collect()
    }

    /// The terms of the geometric product, (left, right, result, sign) with indices of blades, by left and then right blade.
    #[getter]
    fn terms(&self) -> Vec<(u16, u16, u16, i8)> {
        self.0.terms().iter().map(|term| (term.left, term.right, term.out, term.sign)).collect()
    }

    /// The Cayley table: for each left blade a row with the products with each right blade, such as "e12", "-e3", "1" or "0".
    #[getter]
    fn cayley<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let product = |left, right| match self.0.blade_product(left, right) {
            (_, 0) => "0".to_owned(),
            (out, sign) => (if sign < 0 { "-" } else { "" }).to_owned() + &self.0.blade_name(out),
        };
        let count = self.0.blade_count();
        let row = |left| PyTuple::new(py, (0..count).map(|right| product(left, right)).collect::<Vec<_>>());
        PyTuple::new(py, (0..count).map(row).collect::<PyResult<Vec<_>>>()?)
    }

    /// The pseudoscalar e12…n.
    #[getter]
    fn pseudoscalar(&self) -> PyMultivector {
        PyMultivector(self.0.pseudoscalar())
    }

    /// A scalar as a multivector.
    fn scalar(&self, value: f64) -> PyMultivector {
        PyMultivector(self.0.scalar(value))
    }

    /// The vector with components along e1, …, en, as numbers or as one sequence.
    ///
    /// Raises:
    ///     ShapeError: another number of components than n.
    #[pyo3(signature = (*components))]
    fn vector(&self, components: &Bound<'_, PyTuple>) -> PyResult<PyMultivector> {
        let py = components.py();
        let values: Vec<f64> = match components.extract::<(Vec<f64>,)>() {
            Ok((values,)) => values,
            Err(_) => components.extract()?,
        };
        self.of(py, self.0.vector(&values))
    }

    /// A multivector of: text such as "1 + 2e1 - e12"; a dict of blades such as {"1": 1, "e12": -1}; all 2ⁿ coefficients; a number; or a
    /// multivector of this algebra.
    ///
    /// Raises:
    ///     ArgumentError: text that is no multivector, an unknown blade, a multivector of another algebra.
    ///     ShapeError: another number of coefficients than 2ⁿ.
    fn multivector(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<PyMultivector> {
        let Ok(source) = value.extract::<Source<'_>>() else {
            let message = format!(
                "{} cannot become a multivector; give text, a dict of blades, {} coefficients, or a number",
                value.get_type().qualname()?,
                self.0.blade_count()
            );
            return Err(Class::Argument.exception(py, &message));
        };
        match source {
            Source::Multivector(value) => self.of(py, self.0.zero().plus(&value.get().0)),
            Source::Rotor(value) => self.of(py, self.0.zero().plus(value.get().0.as_multivector())),
            Source::Number(value) => Ok(self.scalar(value)),
            Source::Text(text) => self.of(py, self.0.parse(&text)),
            Source::Coefficients(values) => self.of(py, self.0.multivector(&values)),
            Source::Blades(blades) => {
                let mut result: Multivector<Algebra, f64> = self.0.zero();
                for (name, value) in blades {
                    let name: String = name.extract()?;
                    let (blade, sign) = self
                        .named(&name)
                        .ok_or_else(|| Class::Argument.exception(py, &self.unknown(&name)))?;
                    result.coefficients_mut()[blade] += sign * value.extract::<f64>()?;
                }
                Ok(PyMultivector(result))
            }
        }
    }

    /// The rotor that turns by `angle` radians in `plane`, a simple bivector of any size: for a ^ b from a towards b. In a plane with a
    /// positive square it is the boost by the rapidity `angle`.
    ///
    /// Raises:
    ///     ArgumentError: `plane` is not a simple bivector, or its square is zero.
    fn rotor(&self, py: Python<'_>, plane: &Bound<'_, PyMultivector>, angle: f64) -> PyResult<PyRotor> {
        let plane = &plane.get().0;
        self.0.zero::<f64>().plus(plane).map_err(|error| fail(py, error))?;
        PyRotor::of(py, gradewise_core::Rotor::from_plane_angle(plane, angle))
    }

    /// The rotor that takes the direction of the vector `a` to that of the vector `b`, in the plane of both.
    ///
    /// Raises:
    ///     ArgumentError: no rotor does, as for a vector with a positive and one with a negative square.
    fn rotor_between(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyMultivector>,
        b: &Bound<'_, PyMultivector>,
    ) -> PyResult<PyRotor> {
        self.0.zero::<f64>().plus(&a.get().0).map_err(|error| fail(py, error))?;
        PyRotor::of(py, gradewise_core::Rotor::from_vectors(&a.get().0, &b.get().0))
    }

    /// The identity rotor.
    #[getter]
    fn identity(&self) -> PyRotor {
        PyRotor(gradewise_core::Rotor::identity_in(&self.0))
    }

    /// In Cl(3,0,1) the point (x, y, z), e123 − z e124 + y e134 − x e234.
    ///
    /// Raises:
    ///     ArgumentError: another algebra.
    fn point(&self, py: Python<'_>, x: f64, y: f64, z: f64) -> PyResult<PyMultivector> {
        self.projective(py, "a point", pga3::point([x, y, z]))
    }

    /// In Cl(3,0,1) the plane a x + b y + c z + d = 0, a e1 + b e2 + c e3 + d e4.
    ///
    /// Raises:
    ///     ArgumentError: another algebra.
    fn plane(&self, py: Python<'_>, a: f64, b: f64, c: f64, d: f64) -> PyResult<PyMultivector> {
        self.projective(py, "a plane", pga3::plane(a, b, c, d))
    }

    /// In Cl(3,0,1) the motor that moves by (x, y, z), 1 + ½ (x e14 + y e24 + z e34).
    ///
    /// Raises:
    ///     ArgumentError: another algebra.
    fn translator(&self, py: Python<'_>, x: f64, y: f64, z: f64) -> PyResult<PyRotor> {
        let motor = gradewise_core::Motor3::translation([x, y, z]).into_multivector();
        let motor = self.projective(py, "a translator", motor)?;
        PyRotor::of(py, gradewise_core::Rotor::new(motor.0))
    }

    /// The blade of a name, such as ``algebra["e12"]``; "e21" is −e12.
    ///
    /// Raises:
    ///     KeyError: there is no such blade.
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<PyMultivector> {
        let (blade, sign) = self.named(name).ok_or_else(|| PyKeyError::new_err(self.unknown(name)))?;
        self.of(py, Multivector::blade_in(&self.0, blade, sign))
    }

    /// Blades are attributes.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<PyMultivector> {
        let is_blade = name.strip_prefix('e').is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()));
        let missing = || {
            PyAttributeError::new_err(if is_blade {
                self.unknown(name)
            } else {
                format!("'Algebra' object has no attribute '{name}'")
            })
        };
        let (blade, sign) = self.named(name).ok_or_else(missing)?;
        self.of(py, Multivector::blade_in(&self.0, blade, sign))
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<String>> {
        let py = slf.py();
        let object = py.import("builtins")?.getattr("object")?;
        let mut names: Vec<String> = object.call_method1("__dir__", (slf,))?.extract()?;
        let algebra = &slf.get().0;
        names.extend((1..algebra.blade_count()).map(|blade| algebra.blade_name(blade)));
        Ok(names)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.signature().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let Signature { p, q, r } = self.0.signature();
        format!("Algebra({p}, {q}, {r})")
    }

    /// The Cayley table, in notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let signature = self.0.signature();
        if self.0.dimension() > 5 {
            return Ok(format!("{signature} with {} blades", self.0.blade_count()));
        }
        let mut html = format!("<table><caption>{signature}</caption>");
        let rows: Vec<Vec<String>> = self.cayley(py)?.extract()?;
        for row in rows {
            let cells: String =
                row.iter().map(|cell| format!("<td>{}</td>", cell.replace('-', "−"))).collect();
            // Writing to a string cannot fail.
            let _ = write!(html, "<tr>{cells}</tr>");
        }
        Ok(html + "</table>")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (u8, u8, u8)) {
        (slf.get_type().into_any(), slf.get().signature())
    }

    /// The most generators that an algebra may have.
    #[classattr]
    const MAX_GENERATORS: usize = MAX_DIMENSION;
}
