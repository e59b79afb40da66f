//! The functions that gates and scalars of transformers go through.

use crate::cpu::simd::Real;

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Activation {
    /// max(x, 0).
    Relu = 1,
    /// 1/(1 + e^−x).
    Sigmoid = 2,
    /// tanh x.
    Tanh = 3,
    /// x·sigmoid(x).
    Silu = 4,
    /// x·Φ(x) with the normal distribution's Φ.
    Gelu = 5,
    /// The same, by an approximation with tanh (Hendrycks and Gimpel 2016, arXiv:1606.08415).
    GeluTanh = 6,
}

/// A function's value and slope.
pub(super) fn jet<T: Real>(kind: Activation, x: T) -> (T, T) {
    let (one, half) = (T::one(), T::narrow(0.5));
    let sigmoid = || one / (one + (-x).exp());
    match kind {
        Activation::Relu if x > T::zero() => (x, one),
        Activation::Relu => (T::zero(), T::zero()),
        Activation::Sigmoid => {
            let s = sigmoid();
            (s, s * (one - s))
        }
        Activation::Tanh => {
            let t = x.tanh();
            (t, one - t * t)
        }
        Activation::Silu => {
            let s = sigmoid();
            (x * s, s * (one + x * (one - s)))
        }
        Activation::Gelu => {
            let p = half * (one + (x * T::narrow(std::f64::consts::FRAC_1_SQRT_2)).error_function::<false>());
            let density = T::narrow(0.398_942_280_401_432_7) * (-half * x * x).exp();
            (x * p, p + x * density)
        }
        Activation::GeluTanh => {
            let (k, c) = (T::narrow(0.797_884_560_802_865_4), T::narrow(0.044_715));
            let t = (k * (x + c * x * x * x)).tanh();
            let slope = half * (one + t) + half * x * (one - t * t) * k * (one + T::narrow(3.0) * c * x * x);
            (half * x * (one + t), slope)
        }
    }
}
