//! Sums of several arrays of one shape: one launch on CUDA, one array after the other on the host.

mod cuda;

use crate::ops::{add, add_assign};
use crate::{Array, Device, Error, Result, array::copy};

const NAME: &str = "add_n";

/// Most arrays per launch. A longer sum adds the first ones, then the result and the ones that follow.
pub const ADD_N_AT_ONCE: usize = 8;

/// The sum of arrays of one shape, added in order; 16-bit numbers in `f32`, rounded once for each [`ADD_N_AT_ONCE`] arrays. Views are read
/// without a copy.
///
/// # Errors
/// If there is no array, or shapes, dtypes or devices differ.
pub fn add_n(arrays: &[&Array]) -> Result<Array> {
    let [first, others @ ..] = arrays else {
        return Err(Error::Argument {
            operation: NAME,
            argument: "arrays",
            actual: "empty".to_owned(),
            expected: "at least one array",
        });
    };
    check(first, others)?;
    let (mut sum, later) = match (first.device(), others) {
        (_, []) => return copy::contiguous(first),
        (Device::Cuda(device), [_, _, ..]) => {
            let (now, later) = others.split_at(others.len().min(ADD_N_AT_ONCE - 1));
            let sum = Array::for_kernel(NAME, first.shape(), first.dtype(), &device)?;
            // SAFETY: `check` compared all arrays; the sum is new.
            unsafe { cuda::into(&device, &sum, first, now)? };
            (sum, later)
        }
        (_, [second, later @ ..]) => (add(first, second)?, later),
    };
    add_n_assign(&mut sum, later)?;
    Ok(sum)
}

/// Adds arrays of its shape to `a`, in order and in place, without a copy if `a` does not share its storage.
///
/// # Errors
/// If shapes, dtypes or devices differ.
pub fn add_n_assign(a: &mut Array, others: &[&Array]) -> Result<()> {
    check(a, others)?;
    match (a.device(), others) {
        (Device::Cuda(device), [_, _, ..]) if a.is_unique() && a.is_contiguous() && !device.records() => {
            // SAFETY: `check` compared all arrays; a is contiguous and unique.
            let add = |now: &[&Array]| unsafe { cuda::into(&device, a, a, now) };
            others.chunks(ADD_N_AT_ONCE - 1).try_for_each(add)
        }
        (Device::Cuda(_), [_, _, ..]) => {
            *a = add_n(&[&[&*a], others].concat())?;
            Ok(())
        }
        _ => others.iter().try_for_each(|other| add_assign(a, other)),
    }
}

fn check(first: &Array, others: &[&Array]) -> Result<()> {
    first.device().require(first.dtype(), NAME)?;
    others.iter().try_for_each(|array| {
        array.require_like(first, NAME, "arrays")?;
        array.require_shape(NAME, "arrays", first.dims(), || "it is that of the first array".to_owned())
    })
}
