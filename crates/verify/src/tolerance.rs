//! The numerical contract: how far a result may be from the double-precision oracle.

use gradewise_core::DType;
use gradewise_kernels::Compute;

/// The relative error that an operator may have in a dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    base: f64,
    limit: f64,
}

impl Tolerance {
    /// The table of tolerances by storage, with accumulation in `f32` or wider: 1e-12 for `f64`, 1e-6 for `f32`, 1e-2 for
    /// `bf16`, 2e-3 for `f16`; 1e-3 for `f32` where `matrix_products` are computed in TF32.
    pub fn of(dtype: DType, compute: Compute, matrix_products: bool) -> Self {
        if dtype == DType::F32 && compute == Compute::Tf32 && matrix_products {
            return Self { base: 1e-3, limit: f64::INFINITY };
        }
        match dtype {
            DType::F64 => Self { base: 1e-12, limit: 1e-10 },
            DType::F32 => Self { base: 1e-6, limit: f64::INFINITY },
            DType::BF16 => Self { base: 1e-2, limit: f64::INFINITY },
            DType::F16 => Self { base: 2e-3, limit: f64::INFINITY },
        }
    }

    /// The tolerance of a tensor for which the same formula, evaluated plainly in `f32`, has error `f32_error`: ill
    /// conditioning is not the operator's fault. `f64` is not scaled beyond 1e-10.
    pub fn scaled(self, f32_error: Option<f64>) -> f64 {
        let factor = (4.0 * f32_error.unwrap_or(0.0) / 1e-6).max(1.0);
        (self.base * factor).min(self.limit)
    }
}

/// ‖a − b‖/‖b‖, or ‖a‖ if b is zero. NaN if either holds a NaN, which no comparison with a tolerance passes.
pub fn relative_error(actual: &[f64], expected: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut actual.iter().zip(expected).map(|(a, b)| a - b));
    let scale = norm(&mut expected.iter().copied());
    if scale == 0.0 { difference } else { difference / scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_never_pass() {
        let tolerance = Tolerance::of(DType::F16, Compute::Exact, true).scaled(Some(1.0));
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0), (f64::INFINITY, f64::INFINITY)]
        {
            let error = relative_error(&[a], &[b]);
            assert!(error.is_nan() || error > tolerance, "{a} against {b}");
        }
    }

    #[test]
    fn ill_conditioned_cases_widen_the_tolerance_within_limits() {
        let f32_table = Tolerance::of(DType::F32, Compute::Tf32, false);
        assert_eq!(Tolerance::of(DType::F32, Compute::Tf32, true).scaled(None), 1e-3);
        assert_eq!(f32_table.scaled(None), 1e-6);
        assert_eq!(f32_table.scaled(Some(1e-7)), 1e-6);
        assert!((f32_table.scaled(Some(1e-5)) - 4e-5).abs() < 1e-12);
        assert_eq!(Tolerance::of(DType::F64, Compute::Exact, true).scaled(Some(1.0)), 1e-10);
    }
}
