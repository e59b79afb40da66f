//! What each elementwise function computes.

use super::{
    Function, Number,
    cuda::{Code, Name},
};
use crate::cpu::simd::mul_add;
use gradewise_core::DType;

macro_rules! functions {
    ($($name:ident $(($($field:ident),*))?: |$x:ident, $fma:ident| $body:expr;)*) => {
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
                    Code::new(Name::$name, &[$($($field),*)?])
                }
            }
        )*
    };
    (@f64 $field:ident) => { f64 };
}

functions! {
    Neg: |x, FMA| -x;
    Abs: |x, FMA| x.abs();
    Sign: |x, FMA| {
        // Unlike `signum`, zero for zeros.
        let sign = if x > T::zero() { T::one() } else { x };
        if x < T::zero() { -T::one() } else { sign }
    };
    Exp: |x, FMA| x.exponential::<FMA>();
    Log: |x, FMA| x.ln();
    Sqrt: |x, FMA| x.sqrt();
    Rsqrt: |x, FMA| x.sqrt().recip();
    Recip: |x, FMA| x.recip();
    Square: |x, FMA| x * x;
    Sin: |x, FMA| x.sin();
    Cos: |x, FMA| x.cos();
    Tanh: |x, FMA| if T::DTYPE == DType::F64 { x.tanh() } else { tanh::<T, FMA>(x) };
    Erf: |x, FMA| x.error_function::<FMA>();
    Sigmoid: |x, FMA| x.sigmoid::<FMA>();
    Silu: |x, FMA| x * x.sigmoid::<FMA>();
    Gelu: |x, FMA| x * x.normal_cdf::<FMA>();
    SiluDerivative: |x, FMA| {
        let s = x.sigmoid::<FMA>();
        s + x * (s * (T::one() - s))
    };
    GeluDerivative: |x, FMA| x.normal_cdf::<FMA>() + x * x.normal_pdf::<FMA>();
    Relu: |x, FMA| if x < T::zero() { T::zero() } else { x };
    NotFinite: |x, FMA| if x.is_finite() { T::zero() } else { T::one() };
    AddScalar(c): |x, FMA| x + T::narrow(c);
    MulScalar(c): |x, FMA| x * T::narrow(c);
    Clamp(low, high): |x, FMA| {
        let x = if x < T::narrow(low) { T::narrow(low) } else { x };
        if x > T::narrow(high) { T::narrow(high) } else { x }
    };
    Pow(p): |x, FMA| x.powf(T::narrow(p));
}

pub(super) struct PowInteger(pub i32);

impl Function for PowInteger {
    #[inline(always)]
    fn call<T: Number, const FMA: bool>(&self, x: T) -> T {
        let mut rest = self.0.unsigned_abs();
        let (mut power, mut square) = (T::one(), x);
        while rest > 0 {
            if rest & 1 == 1 {
                power *= square;
            }
            square *= square;
            rest >>= 1;
        }
        if self.0 < 0 { power.recip() } else { power }
    }

    fn code(&self) -> Code {
        Code::new(Name::PowInteger, &[f64::from(self.0)])
    }
}

/// tanh to single precision: by e^(−2|x|), which does not overflow; near 0, where the difference would cancel, by its
/// Taylor series.
#[inline(always)]
fn tanh<T: Number, const FMA: bool>(x: T) -> T {
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
