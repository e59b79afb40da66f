//! Checks on data before anything is computed with it.

use crate::{Error, Result};

/// Magnitudes above this are almost always a unit mistake or an overflow upstream; they cause a warning, not an error.
pub const LARGE_VALUE: f64 = 1e10;

/// Refuses NaN and infinity, naming the first offending element of the row-major array `values` of shape `shape`;
/// warns (through `tracing`) of magnitudes above [`LARGE_VALUE`] and returns how many there are.
///
/// # Errors
/// [`Error::NotFinite`] with the index of the first NaN or infinity.
pub fn check_finite(
    operation: &'static str,
    argument: &str,
    shape: &[usize],
    values: &[f64],
) -> Result<usize> {
    if let Some(position) = values.iter().position(|value| !value.is_finite()) {
        return Err(Error::NotFinite {
            operation,
            argument: argument.to_owned(),
            index: unravel(position, shape),
            value: values[position],
        });
    }
    let large = values.iter().filter(|value| value.abs() > LARGE_VALUE).count();
    if large > 0 {
        let first = values.iter().position(|value| value.abs() > LARGE_VALUE).unwrap_or(0);
        tracing::warn!(
            "{operation}: `{argument}` holds {large} values above {LARGE_VALUE:e} in magnitude, the first at index {:?}",
            unravel(first, shape)
        );
    }
    Ok(large)
}

/// The index along every axis of the element at `position` in row-major order.
fn unravel(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (slot, &size) in index.iter_mut().zip(shape).rev() {
        let size = size.max(1);
        *slot = position % size;
        position /= size;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nan_or_infinity_is_named_by_its_index() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut values = vec![1.5; 24];
            values[17] = bad;
            values[20] = f64::NAN;
            let error = check_finite("test", "loc", &[2, 3, 4], &values).unwrap_err();
            assert!(matches!(&error, Error::NotFinite { index, .. } if *index == [1, 1, 1]), "{error}");
        }
    }

    #[test]
    fn large_values_are_counted_but_accepted() {
        assert_eq!(check_finite("test", "x", &[4], &[1e10, -2e10, 3e300, 0.0]).unwrap(), 2);
        assert_eq!(check_finite("test", "x", &[0], &[]).unwrap(), 0);
    }
}
