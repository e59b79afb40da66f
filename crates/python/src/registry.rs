//! The registry of operations, for tests and for inspection.

use crate::errors::raised;
use gradewise_autograd::{Presence, Role, Sizes, registry};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::{Array, build_info};
use pyo3::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// The names of all operations.
#[pyfunction]
pub fn operations() -> Vec<&'static str> {
    registry::entries().iter().map(|entry| entry.name()).collect()
}

/// An operand: its name, whether it may be left out, whether it has rows, whether it may be in `f32` beside features of 16 bits, and whether
/// its gradient is part of a packed one.
type Operand = (&'static str, bool, bool, bool, bool);

/// The name, what mixed precision does, the operands, and what the forward pass may leave: names, whether in `f32`, whether by kernels alone.
type Described = (&'static str, &'static str, Vec<Operand>, Vec<(&'static str, bool, bool)>);

/// The operations on features, which have rows that are computed each by itself.
#[pyfunction]
pub fn operators() -> Vec<Described> {
    let of_features = registry::entries()
        .into_iter()
        .filter(|entry| entry.operands().iter().any(|operand| operand.role == Role::Rows));
    let describe = |entry: registry::Entry| {
        let operands = entry.operands().iter().map(|operand| {
            let is_optional = operand.presence == Presence::Optional;
            (operand.name, is_optional, operand.role == Role::Rows, operand.may_be_wide, operand.is_packed)
        });
        let saved = entry.saved().iter().map(|saved| (saved.name, saved.is_wide, saved.needs_kernels));
        (entry.name(), entry.rule().name(), operands.collect(), saved.collect())
    };
    of_features.map(describe).collect()
}

/// The architectures that this build has kernels for, such as "90a"; none in a build for the CPU.
#[pyfunction]
pub fn targets() -> Vec<&'static str> {
    build_info().targets.to_vec()
}

/// A sample's attributes as JSON, and for each of its inputs the shape and the elements in row-major order.
type Sample = (String, Vec<(Vec<usize>, Vec<f64>)>);

/// Samples of an operation in the algebra of a signature: its variants, with inputs of so many rows and features.
///
/// The elements are drawn with `seed` and can be held in any dtype of 16 bits or more that has as many digits as bfloat16.
#[pyfunction]
pub fn samples(
    py: Python<'_>,
    operation: &str,
    signature: (u8, u8, u8),
    rows: usize,
    features: usize,
    seed: u64,
) -> PyResult<Vec<Sample>> {
    let fail = |error: gradewise_autograd::Error| raised(py, error);
    let (p, q, r) = signature;
    let sizes = Sizes::new(Signature::new(p, q, r), rows, features).map_err(fail)?;
    let entry = registry::find(operation).ok_or_else(|| {
        pyo3::exceptions::PyKeyError::new_err(format!("there is no operation `{operation}`"))
    })?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let elements = |array: &Array| Ok((array.dims().to_vec(), array.to_f64_vec()?));
    let mut describe = |sample: &gradewise_autograd::AnySample| {
        let drawn = sample.draw(DType::F64, &mut rng)?;
        let inputs = drawn.iter().map(elements).collect::<gradewise_autograd::Result<_>>()?;
        Ok((sample.attributes()?.to_json(), inputs))
    };
    entry.samples(&sizes).and_then(|samples| samples.iter().map(&mut describe).collect()).map_err(fail)
}

/// Sizes of the left operand, the right operand and the result of a bilinear table, and its terms (left, right, result, sign).
type Terms = ((usize, usize, usize), Vec<(u16, u16, u16, i8)>);

/// The table of `table_product` with attributes as JSON.
#[pyfunction]
pub fn table_terms(py: Python<'_>, attributes: &str) -> PyResult<Terms> {
    let read = || {
        let table = gradewise_autograd::clifford::table_of(&attributes.parse()?)?;
        let terms = table.terms().map(|term| (term.a, term.b, term.out, term.sign)).collect();
        Ok(((table.a, table.b, table.out), terms))
    };
    read().map_err(|error: gradewise_autograd::Error| raised(py, error))
}

/// The algebra of a signature (p, q, r).
fn algebra(py: Python<'_>, (p, q, r): (u8, u8, u8)) -> PyResult<Algebra> {
    Algebra::new(Signature::new(p, q, r))
        .map_err(|error| raised(py, gradewise_autograd::Error::from(gradewise_kernels::Error::from(error))))
}

/// The square norm of each blade: the scalar part of its reverse times itself.
#[pyfunction]
pub fn squared_norms(py: Python<'_>, signature: (u8, u8, u8)) -> PyResult<Vec<i8>> {
    Ok(algebra(py, signature)?.squared_norms().to_vec())
}
