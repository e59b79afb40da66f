//! The mean squared error, in one launch forward and one backward on CUDA.

mod cuda;

use crate::ops::{mean, mul, mul_scalar, square, sub};
use crate::{Array, Device, Result};

const NAME: &str = "mean_squared_error";

fn check(a: &Array, b: &Array) -> Result<()> {
    a.device().require(a.dtype(), NAME)?;
    b.require_like(a, NAME, "b")?;
    b.require_shape(NAME, "b", a.dims(), || "it is that of `a`".to_owned())
}

/// The mean of (a − b)² over all elements, a scalar; NaN where there are none.
///
/// # Errors
/// Shapes, dtypes or devices that differ.
pub fn mean_squared_error(a: &Array, b: &Array) -> Result<Array> {
    check(a, b)?;
    match a.device() {
        Device::Cuda(device) => cuda::forward(&device, &a.contiguous()?, &b.contiguous()?),
        Device::Cpu => mean(&square(&sub(a, b)?)?, &(0..a.rank()).collect::<Vec<_>>(), false),
    }
}

/// The gradient of `a` for the scalar gradient `grad` of the mean: 2(a − b)·grad / elements. That of `b` is its negative.
///
/// # Errors
/// As [`mean_squared_error`]; a gradient that is no scalar.
pub fn mean_squared_error_backward(a: &Array, b: &Array, grad: &Array) -> Result<Array> {
    check(a, b)?;
    grad.require_like(a, NAME, "grad")?;
    grad.require_shape(NAME, "grad", &[], || "the mean is a scalar".to_owned())?;
    match a.device() {
        Device::Cuda(device) => cuda::backward(&device, &a.contiguous()?, &b.contiguous()?, grad),
        Device::Cpu => {
            let share = mul_scalar(grad, 1.0 / a.elements() as f64)?.broadcast_to(a.shape())?;
            mul(&share, &mul_scalar(&sub(a, b)?, 2.0)?)
        }
    }
}
