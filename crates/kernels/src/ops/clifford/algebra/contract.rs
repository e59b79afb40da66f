//! Shape contracts shared by the operators on `[blades, batch, features]`.

use crate::{Array, Result};
use gradewise_core::{Algebra, DType, Error as CoreError};

/// The sizes of an array of multivectors, `[blades, rows, features]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Planes {
    pub blades: usize,
    pub rows: usize,
    pub features: usize,
}

impl Planes {
    /// The sizes of an array that an operator has checked or made.
    ///
    /// # Errors
    /// An array of other than three axes.
    pub fn of(operation: &'static str, array: &Array) -> Result<Self> {
        match *array.dims() {
            [blades, rows, features] => Ok(Self { blades, rows, features }),
            _ => Err(CoreError::Shape {
                operation,
                argument: "x",
                actual: array.shape().clone(),
                expected: "[blades, batch, features]".to_owned(),
                reason: "operators on multivectors take three axes".to_owned(),
            }
            .into()),
        }
    }

    /// The sizes of `array`, which must have the blades of `algebra`.
    ///
    /// # Errors
    /// Another shape, on behalf of `argument` of `operation`.
    pub fn checked(
        operation: &'static str,
        argument: &'static str,
        algebra: &Algebra,
        array: &Array,
    ) -> Result<Self> {
        let expected = algebra.blade_count();
        match *array.dims() {
            [blades, rows, features] if blades == expected => Ok(Self { blades, rows, features }),
            _ => Err(CoreError::Shape {
                operation,
                argument,
                actual: array.shape().clone(),
                expected: format!("[{expected}, batch, features]"),
                reason: format!("{} has {expected} blades, which come first", algebra.signature()),
            }
            .into()),
        }
    }

    /// Elements of one blade.
    pub const fn plane(self) -> usize {
        self.rows * self.features
    }

    /// As the shape of an array.
    pub const fn shape(self) -> [usize; 3] {
        [self.blades, self.rows, self.features]
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
        array.require_like(first, operation, argument)?;
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

pub(crate) use crate::cpu::element::with_element as with_real;
