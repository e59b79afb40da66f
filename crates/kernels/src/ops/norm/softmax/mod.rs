//! Softmax and its logarithm along one axis.

mod cuda;

use crate::{
    Array, Device, Result,
    array::require_axis,
    cpu::{
        element::with_element,
        simd::{Kernel, Real, Simd, dispatch},
        split,
    },
    ops::reduce::cpu::{row_max, row_sum},
};

/// e^(x − max) / Σ e^(x − max) along `axis`. A row of −∞ alone, as a mask can leave it, gives zeros.
///
/// # Errors
/// An axis out of range.
pub fn softmax(x: &Array, axis: usize) -> Result<Array> {
    along(x, axis, "softmax", false)
}

/// x − max − log Σ e^(x − max) along `axis`. A row of −∞ alone gives −∞.
///
/// # Errors
/// An axis out of range.
pub fn log_softmax(x: &Array, axis: usize) -> Result<Array> {
    along(x, axis, "log_softmax", true)
}

fn along(x: &Array, axis: usize, name: &'static str, log: bool) -> Result<Array> {
    require_axis(name, axis, x.shape())?;
    let last = x.rank() - 1;
    if axis != last {
        return along(&x.transpose(axis, last)?, last, name, log)?.transpose(axis, last)?.contiguous();
    }
    let columns = x.dims()[last];
    let source = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return cuda::run(&device, name, &source, log);
    }
    with_element!(x.dtype(), name, T => {
        let source = source.as_slice::<T>()?;
        Array::build::<T>(x.shape(), &x.device(), |out| {
            split::for_chunks(out, split::rows_per_chunk(columns) * columns, |start, out| {
                dispatch(Rows { x: &source[start..start + out.len()], out, columns, log });
            });
        })
    })
}

struct Rows<'a, T> {
    x: &'a [T],
    out: &'a mut [T],
    columns: usize,
    log: bool,
}

impl<T: Real> Kernel for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { x, out, columns, log } = self;
        if columns == 0 {
            return;
        }
        // NaN spreads over its row.
        let max = |x: &[T]| T::narrow(row_max(x));
        let finite = |max: T| if max == T::neg_infinity() { T::zero() } else { max };
        for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
            let shift = finite(max(x));
            for (out, &x) in out.iter_mut().zip(x) {
                *out = x - shift;
            }
        }
        if log {
            for out in out.chunks_exact_mut(columns) {
                let mut total = 0.0;
                for &x in out.iter() {
                    total += x.exponential::<FMA>().widen();
                }
                let offset = T::narrow(total.ln());
                for out in out {
                    *out = if total == 0.0 { T::neg_infinity() } else { *out - offset };
                }
            }
            return;
        }
        // Across rows, so that short rows fill the vector registers too.
        for out in out.iter_mut() {
            *out = out.exponential::<FMA>();
        }
        for out in out.chunks_exact_mut(columns) {
            let total = row_sum(out);
            if total != 0.0 {
                let scale = T::narrow(1.0 / total);
                for out in out {
                    *out *= scale;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{log_softmax, softmax};
    use crate::{Array, Device};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn rows_sum_to_one_and_shifts_change_nothing(
            row in prop::collection::vec(-30.0f64..30.0, 1..20), shift in -1e4f64..1e4,
        ) {
            let x = Array::from_slice(&row, [1, row.len()], &Device::Cpu).unwrap();
            let y = softmax(&x, 1).unwrap().to_vec::<f64>().unwrap();
            prop_assert!((y.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let shifted: Vec<f64> = row.iter().map(|x| x + shift).collect();
            let z = Array::from_slice(&shifted, [row.len(), 1], &Device::Cpu).unwrap();
            let z = softmax(&z, 0).unwrap().to_vec::<f64>().unwrap();
            prop_assert!(y.iter().zip(&z).all(|(y, z)| (y - z).abs() < 1e-10));
            let log = log_softmax(&x, 1).unwrap().to_vec::<f64>().unwrap();
            prop_assert!(y.iter().zip(&log).all(|(y, log)| (y.ln() - log).abs() < 1e-10));
        }
    }

    #[test]
    fn extremes_are_defined() {
        let inf = f32::INFINITY;
        let x = [1e4f32, -1e4, 0.0, -inf, -inf, -inf, f32::NAN, 0.0, 1.0];
        let x = Array::from_slice(&x, [3, 3], &Device::Cpu).unwrap();
        let y = softmax(&x, 1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(y[..6], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(y[6..].iter().all(|y| y.is_nan()), "NaN spreads over its row");
        let log = log_softmax(&x, 1).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(log[..6], [0.0, -2e4, -1e4, -inf, -inf, -inf]);
    }
}
