//! Elementwise functions of one array.
//!
//! NaN propagates. Where the function is undefined (the logarithm of a negative number), the result is NaN.

mod cpu;
mod cuda;
mod functions;

use crate::{Array, Device, Error, Result, array::elementwise::map, cpu::element::with_element};
pub use functions::*;

/// A function of one number.
trait Function: Send + Sync + 'static {
    fn call<T: Number, const FMA: bool>(&self, x: T) -> T;

    /// The function's number and parameters on a device.
    fn code(&self) -> cuda::Code;
}

/// The element types, with elementary functions that vectorise.
trait Number: crate::Element + crate::cpu::simd::Real {}
impl<T: crate::Element + crate::cpu::simd::Real> Number for T {}

fn unary(name: &'static str, x: &Array, function: impl Function) -> Result<Array> {
    if let Device::Cuda(device) = x.device() {
        return cuda::run(&device, name, x, function.code());
    }
    with_element!(x.dtype(), name, T => map(name, x.shape(), [x], cpu::Apply::<T, _>::new(function)))
}

/// x + c.
///
/// # Errors
/// If the device does not support the dtype or is out of memory.
pub fn add_scalar(x: &Array, c: f64) -> Result<Array> {
    unary("add_scalar", x, AddScalar(c))
}

/// c·x.
///
/// # Errors
/// If the device does not support the dtype or is out of memory.
pub fn mul_scalar(x: &Array, c: f64) -> Result<Array> {
    unary("mul_scalar", x, MulScalar(c))
}

/// xᵖ. For an integral p that fits 32 bits by multiplication, so that negative x are fine; otherwise NaN for them.
///
/// # Errors
/// If the device does not support the dtype or is out of memory.
pub fn pow_scalar(x: &Array, p: f64) -> Result<Array> {
    const NAME: &str = "pow_scalar";
    if p.fract() == 0.0 && p.abs() <= f64::from(i32::MAX) {
        unary(NAME, x, PowInteger(p))
    } else {
        unary(NAME, x, Pow(p))
    }
}

/// x limited to `low..=high`; NaN stays.
///
/// # Errors
/// If `low > high` or either is NaN.
pub fn clamp(x: &Array, low: f64, high: f64) -> Result<Array> {
    if low <= high {
        return unary("clamp", x, Clamp(low, high));
    }
    Err(Error::Argument {
        operation: "clamp",
        argument: "low, high",
        actual: format!("{low}, {high}"),
        expected: "low ≤ high, neither of them NaN",
    })
}
