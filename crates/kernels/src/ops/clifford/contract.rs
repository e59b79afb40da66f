//! Shape contracts shared by the operators on `[blades, batch, features]`.

use crate::{Array, Result};
use gradewise_core::{Algebra, DType, Error as CoreError};

/// Checks that `array` is `[blades, batch, features]` of `algebra` and returns (batch, features).
pub(crate) fn features(
    operation: &'static str,
    argument: &'static str,
    algebra: &Algebra,
    array: &Array,
) -> Result<(usize, usize)> {
    let blades = algebra.blade_count();
    match array.shape()[..] {
        [leading, batch, features] if leading == blades => Ok((batch, features)),
        _ => Err(CoreError::Shape {
            operation,
            argument,
            actual: array.shape().clone(),
            expected: format!("[{blades}, batch, features]"),
            reason: format!("{} has {blades} blades, which come first", algebra.signature()),
        }
        .into()),
    }
}

/// Checks one array against a fully known shape.
pub(crate) fn exact(
    operation: &'static str,
    argument: &'static str,
    array: &Array,
    expected: &[usize],
    reason: impl FnOnce() -> String,
) -> Result<()> {
    if array.shape()[..] == *expected {
        return Ok(());
    }
    Err(CoreError::Shape {
        operation,
        argument,
        actual: array.shape().clone(),
        expected: gradewise_core::Shape::from(expected).to_string(),
        reason: reason(),
    }
    .into())
}

/// Checks that every named array has the dtype and the device of the first.
pub(crate) fn alike(operation: &'static str, arrays: &[(&'static str, &Array)]) -> Result<DType> {
    let Some((_, first)) = arrays.first() else {
        return Ok(DType::F32);
    };
    for (argument, array) in arrays {
        if array.dtype() != first.dtype() {
            return Err(CoreError::DType {
                operation,
                argument,
                actual: array.dtype(),
                expected: first.dtype(),
            }
            .into());
        }
        first.require_beside(&array.device(), operation, argument)?;
    }
    Ok(first.dtype())
}

/// "20 grade paths of Cl(3,0,0)": the reason behind a weight's shape.
pub(crate) fn paths_reason(algebra: &Algebra) -> String {
    format!("one weight for each of the {} grade paths of {}", algebra.paths().len(), algebra.signature())
}

/// "4 grades of Cl(3,0,0)": the reason behind a parameter's shape.
pub(crate) fn grades_reason(algebra: &Algebra) -> String {
    format!("one entry for each of the {} grades of {}", algebra.grade_count(), algebra.signature())
}

pub(crate) use crate::element::with_element as with_real;
