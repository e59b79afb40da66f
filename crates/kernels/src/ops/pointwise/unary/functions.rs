//! The elementwise functions: their operators, numbers, and what they compute.

use super::{Function, Number, cuda::Code, unary};
use crate::{Array, Result, cpu::simd::mul_add};
use gradewise_core::DType;

/// The one list of the functions: each with its parameters and what it computes, and, if it has none, the operator and its documentation.
macro_rules! functions {
    ($($($(#[$doc:meta])+ $operator:ident =)? $name:ident $(($($field:ident),*))?: |$x:ident, $fma:ident| $body:expr;)*) => {
        /// Numbers as in csrc/gradewise/functions.cuh.
        #[repr(i32)]
        enum Name {
            $($name,)*
        }

        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            pub(super) struct $name $(($(pub functions!(@f64 $field)),*))?;

            impl Function for $name {
                #[inline(always)]
                fn call<T: Number, const $fma: bool>(&self, $x: T) -> T {
                    $(let &Self($($field),*) = self;)?
                    $body
                }

                fn code(&self) -> Code {
                    $(let &Self($($field),*) = self;)?
                    Code::new(Name::$name as i32, stringify!($name), &[$($($field),*)?])
                }
            }

            $(
                $(#[$doc])+
                ///
                /// # Errors
                /// If the device does not support the dtype or is out of memory.
                pub fn $operator(x: &Array) -> Result<Array> {
                    unary(stringify!($operator), x, $name)
                }
            )?
        )*
    };
    (@f64 $field:ident) => { f64 };
}

functions! {
    /// −x.
    neg = Neg: |x, FMA| -x;
    /// |x|.
    abs = Abs: |x, FMA| x.abs();
    /// −1, 0 or 1 as x is negative, zero or positive.
    sign = Sign: |x, FMA| {
        // Unlike `signum`, zero for zeros.
        let sign = if x > T::zero() { T::one() } else { x };
        if x < T::zero() { -T::one() } else { sign }
    };
    /// eˣ.
    exp = Exp: |x, FMA| x.exponential::<FMA>();
    /// ln x.
    log = Log: |x, FMA| x.ln();
    /// √x.
    sqrt = Sqrt: |x, FMA| x.sqrt();
    /// 1/√x.
    rsqrt = Rsqrt: |x, FMA| x.sqrt().recip();
    /// 1/x.
    recip = Recip: |x, FMA| x.recip();
    /// x².
    square = Square: |x, FMA| x * x;
    /// sin x, in radians.
    sin = Sin: |x, FMA| x.sin();
    /// cos x, in radians.
    cos = Cos: |x, FMA| x.cos();
    /// tanh x.
    tanh = Tanh: |x, FMA| if T::DTYPE == DType::F64 { x.tanh() } else { tanh_f32::<T, FMA>(x) };
    /// The error function, 2/√π ∫₀ˣ e^(−t²) dt.
    erf = Erf: |x, FMA| x.error_function::<FMA>();
    /// The logistic function 1/(1 + e⁻ˣ).
    sigmoid = Sigmoid: |x, FMA| x.sigmoid::<FMA>();
    /// x·σ(x), with the logistic function σ (Elfwing et al. 2018, arXiv:1702.03118).
    silu = Silu: |x, FMA| x * x.sigmoid::<FMA>();
    /// x·Φ(x), with the standard normal distribution function Φ in its exact form (Hendrycks & Gimpel 2016,
    /// arXiv:1606.08415).
    gelu = Gelu: |x, FMA| x * x.normal_cdf::<FMA>();
    /// The derivative of [`silu`], σ(x) + x·σ(x)·(1 − σ(x)).
    silu_derivative = SiluDerivative: |x, FMA| {
        let s = x.sigmoid::<FMA>();
        s + x * (s * (T::one() - s))
    };
    /// The derivative of [`gelu`], Φ(x) + x·φ(x), with the standard normal density φ.
    gelu_derivative = GeluDerivative: |x, FMA| x.normal_cdf::<FMA>() + x * x.normal_pdf::<FMA>();
    /// max(x, 0).
    relu = Relu: |x, FMA| if x < T::zero() { T::zero() } else { x };
    /// 1 where x is NaN or infinite, else 0.
    not_finite = NotFinite: |x, FMA| if x.is_finite() { T::zero() } else { T::one() };
    AddScalar(c): |x, FMA| x + T::narrow(c);
    MulScalar(c): |x, FMA| x * T::narrow(c);
    Clamp(low, high): |x, FMA| {
        let x = if x < T::narrow(low) { T::narrow(low) } else { x };
        if x > T::narrow(high) { T::narrow(high) } else { x }
    };
    Pow(p): |x, FMA| x.powf(T::narrow(p));
    PowInteger(n): |x, FMA| integer_power(x, n as i32);
}

/// xⁿ by repeated squaring, for either sign of x.
#[inline(always)]
fn integer_power<T: Number>(x: T, n: i32) -> T {
    let mut rest = n.unsigned_abs();
    let (mut power, mut square) = (T::one(), x);
    while rest > 0 {
        if rest & 1 == 1 {
            power *= square;
        }
        square *= square;
        rest >>= 1;
    }
    if n < 0 { power.recip() } else { power }
}

/// tanh to single precision: by e^(−2|x|), which does not overflow; near 0, where the difference would cancel, by its
/// Taylor series.
#[inline(always)]
fn tanh_f32<T: Number, const FMA: bool>(x: T) -> T {
    const SERIES: [f64; 7] = [
        1.0,
        -1.0 / 3.0,
        2.0 / 15.0,
        -17.0 / 315.0,
        62.0 / 2835.0,
        -1382.0 / 155_925.0,
        21844.0 / 6_081_075.0,
    ];
    let (magnitude, square) = (x.abs(), x * x);
    let e = (magnitude * T::narrow(-2.0)).exponential::<FMA>();
    let far = ((T::one() - e) / (T::one() + e)).copysign(x);
    let mut sum = T::narrow(SERIES[SERIES.len() - 1]);
    for term in (0..SERIES.len() - 1).rev() {
        sum = mul_add::<T, FMA>(sum, square, T::narrow(SERIES[term]));
    }
    if magnitude < T::narrow(0.35) { x * sum } else { far }
}
