//! Elementwise functions of one array.
//!
//! NaN propagates. Where the function is undefined (the logarithm of a negative number), the result is NaN.

mod cpu;
mod cuda;
mod functions;

use crate::{
    Array, Device, Error, Result,
    array::{copy, layout},
    cpu::element::with_element,
};
use functions::*;

/// A function of one number.
trait Function: Sync {
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
    let own = x.shape().contiguous_strides();
    let (sizes, [strides, _]) = layout::collapse(x.dims(), [x.strides(), &own]);
    with_element!(x.dtype(), name, T => {
        let (source, _) = copy::view::<T>(x, name)?;
        Array::build(x.shape(), &x.device(), |out: &mut [T]| cpu::run(&sizes, source, &strides, &function, out))
    })
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $function:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the device does not support the dtype or is out of memory.
            pub fn $name(x: &Array) -> Result<Array> {
                unary(stringify!($name), x, $function)
            }
        )*
    };
}

unary! {
    /// −x.
    neg, Neg;
    /// |x|.
    abs, Abs;
    /// −1, 0 or 1 as x is negative, zero or positive.
    sign, Sign;
    /// eˣ.
    exp, Exp;
    /// ln x.
    log, Log;
    /// √x.
    sqrt, Sqrt;
    /// 1/√x.
    rsqrt, Rsqrt;
    /// 1/x.
    recip, Recip;
    /// x².
    square, Square;
    /// sin x, in radians.
    sin, Sin;
    /// cos x, in radians.
    cos, Cos;
    /// tanh x.
    tanh, Tanh;
    /// The error function, 2/√π ∫₀ˣ e^(−t²) dt.
    erf, Erf;
    /// The logistic function 1/(1 + e⁻ˣ).
    sigmoid, Sigmoid;
    /// x·σ(x), with the logistic function σ (Elfwing et al. 2018, arXiv:1702.03118).
    silu, Silu;
    /// x·Φ(x), with the standard normal distribution function Φ in its exact form (Hendrycks & Gimpel 2016,
    /// arXiv:1606.08415).
    gelu, Gelu;
    /// The derivative of [`silu`], σ(x) + x·σ(x)·(1 − σ(x)).
    silu_derivative, SiluDerivative;
    /// The derivative of [`gelu`], Φ(x) + x·φ(x), with the standard normal density φ.
    gelu_derivative, GeluDerivative;
    /// max(x, 0).
    relu, Relu;
    /// 1 where x is NaN or infinite, else 0.
    not_finite, NotFinite;
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
        unary(NAME, x, PowInteger(p as i32))
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
