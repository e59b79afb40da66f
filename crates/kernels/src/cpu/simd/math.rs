//! Elementary functions that vectorise.
//!
//! In `f32` these are branch-free polynomials, so that a loop over lanes becomes vector code; in `f64`, where
//! accuracy comes first, they are the scalar functions of the standard library and of `libm`.

use super::{Vectors, mul_add};
use gemm_common::Parallelism;

/// The product of the `gemm` crates for the best instruction set of this machine.
///
/// Arguments: m, n, k; `out` with the strides of its columns and rows, and whether it is added to; `a` and `b` likewise; the
/// factors of `out` and of the product; what is conjugated; how it is shared among threads.
///
/// # Safety
/// The strides must reach elements of their matrices alone, and `out` may overlap neither `a` nor `b`.
pub(crate) type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// The floating-point types the CPU kernels are written for.
///
/// NaN propagates through every function here.
pub trait Real: Vectors {
    /// The product of matrices for the best instruction set of this machine.
    fn gemm() -> Gemm<Self>;

    /// e^x.
    fn exponential<const FMA: bool>(self) -> Self;

    /// The error function.
    fn error_function<const FMA: bool>(self) -> Self;

    /// The number, or 0 if it is subnormal: for what is stored and comes back every step. It holds where the processor does not
    /// flush as well, and on CUDA (`flushed` in csrc/gradewise/math.cuh).
    #[inline(always)]
    fn flushed(self) -> Self {
        if self.abs() < Self::min_positive_value() { Self::zero() } else { self }
    }

    /// The logistic function 1/(1 + e^−x).
    #[inline(always)]
    fn sigmoid<const FMA: bool>(self) -> Self {
        Self::one() / (Self::one() + (-self).exponential::<FMA>())
    }

    /// Φ(x) = ½(1 + erf(x/√2)), the standard normal distribution function.
    #[inline(always)]
    fn normal_cdf<const FMA: bool>(self) -> Self {
        let half = Self::narrow(0.5);
        mul_add::<Self, FMA>(
            half,
            (self * Self::narrow(std::f64::consts::FRAC_1_SQRT_2)).error_function::<FMA>(),
            half,
        )
    }

    /// φ(x) = e^(−x²/2)/√(2π), the derivative of Φ.
    #[inline(always)]
    fn normal_pdf<const FMA: bool>(self) -> Self {
        const INV_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
        (-Self::narrow(0.5) * self * self).exponential::<FMA>() * Self::narrow(INV_SQRT_TAU)
    }
}

impl Real for f64 {
    fn gemm() -> Gemm<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }

    #[inline(always)]
    fn exponential<const FMA: bool>(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn error_function<const FMA: bool>(self) -> Self {
        libm::erf(self)
    }
}

impl Real for f32 {
    fn gemm() -> Gemm<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }

    /// Cody–Waite reduction by multiples of ln 2 and a polynomial of degree 6; at most 2 ulp off.
    #[inline(always)]
    fn exponential<const FMA: bool>(self) -> Self {
        // Adding 1.5·2²³ leaves the rounded integer in the low bits of the sum.
        const ROUND: f32 = 12_582_912.0;
        // ln 2 split so that multiples of the first part are exact.
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        let x = clamp(self, -87.0, 88.0);
        let shifted = mul_add::<f32, FMA>(x, std::f32::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = mul_add::<f32, FMA>(-n, LN2_LOW, mul_add::<f32, FMA>(-n, LN2_HIGH, x));
        const P: [f32; 6] = [0.5, 1.666_666_5e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_2e-3, 1.987_569_1e-4];
        let p = mul_add::<f32, FMA>(polynomial::<6, FMA>(&P, r), r * r, r) + 1.0;
        let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
        let result = p * f32::from_bits(exponent);
        // The clamp bounds the exponent; beyond it the limits are 0 and ∞.
        let result = if self < -87.0 { 0.0 } else { result };
        if self > 88.0 { f32::INFINITY } else { result }
    }

    /// Odd polynomial below 1, 1 − e^(−q(x)) above, both fitted by `scripts/fit_erf.py`; at most 2 ulp off.
    #[inline(always)]
    fn error_function<const FMA: bool>(self) -> Self {
        const P: [f32; 7] = [
            std::f32::consts::FRAC_2_SQRT_PI,
            -0.376_126_26,
            0.112_835_85,
            -0.026_853_812,
            0.005_188_327_4,
            -8.010_191_4e-4,
            7.853_854e-5,
        ];
        const Q: [f32; 8] = [
            -1.834_453_3e-4,
            1.129_556_8,
            0.633_262_6,
            0.108_372_49,
            -0.025_178_977,
            0.004_193_615,
            -4.391_071_8e-4,
            2.149_618_7e-5,
        ];
        let small = self * polynomial::<7, FMA>(&P, self * self);
        let magnitude = clamp(self.abs(), 0.0, 4.0);
        let large = (1.0 - (-polynomial::<8, FMA>(&Q, magnitude)).exponential::<FMA>()).copysign(self);
        // NaN fails the comparison and comes out of `large`, whose clamp keeps it.
        if self.abs() < 1.0 { small } else { large }
    }
}

/// Limits to [low, high] and, unlike `f32::clamp` built on min and max, keeps NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Horner's scheme; coefficients from the constant term up.
#[inline(always)]
fn polynomial<const N: usize, const FMA: bool>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut sum = coefficients[N - 1];
    for index in (0..N - 1).rev() {
        sum = mul_add::<f32, FMA>(sum, x, coefficients[index]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::Real;
    use proptest::prelude::*;

    fn ulps(value: f32, reference: f64) -> f64 {
        let rounded = reference as f32;
        (f64::from(value) - reference).abs() / f64::from(f32::EPSILON * rounded.abs().max(f32::MIN_POSITIVE))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn exponential_is_within_two_ulps(x in -86.0f32..88.0) {
            prop_assert!(ulps(x.exponential::<true>(), f64::from(x).exp()) <= 2.0);
        }

        #[test]
        fn error_function_is_within_three_ulps(x in -6.0f32..6.0) {
            prop_assert!(ulps(x.error_function::<true>(), libm::erf(f64::from(x))) <= 3.0, "{}", ulps(x.error_function::<true>(), libm::erf(f64::from(x))));
        }
    }

    #[test]
    fn limits_and_nan_are_kept() {
        assert_eq!(1000f32.exponential::<true>(), f32::INFINITY);
        assert_eq!((-1000f32).exponential::<true>(), 0.0);
        assert_eq!(f32::INFINITY.error_function::<true>(), 1.0);
        assert_eq!(f32::NEG_INFINITY.error_function::<true>(), -1.0);
        assert_eq!(0f32.error_function::<true>(), 0.0);
        assert_eq!(1000f32.sigmoid::<true>(), 1.0);
        assert_eq!((-1000f32).sigmoid::<true>(), 0.0);
        for value in [
            f32::NAN.exponential::<true>(),
            f32::NAN.error_function::<true>(),
            f32::NAN.sigmoid::<true>(),
            f32::NAN.normal_cdf::<true>(),
        ] {
            assert!(value.is_nan());
        }
    }
}
