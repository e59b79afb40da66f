//! Matrix products against three loops; softmax against its definition and at its limits.

use gradewise_core::Error as CoreError;
use gradewise_kernels::{Array, DType, Device, Error, ops};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], dtype: DType, seed: u64) -> Array {
    Array::randn(shape, dtype, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn values(array: &Array) -> Vec<f64> {
    array.to_f64_vec().unwrap()
}

/// The product of row-major matrices, m×k by k×n.
fn product(a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
        }
    }
    out
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-13 } else { 1e-6 }
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn products_of_transposed_and_strided_matrices(
        (m, k, n) in (0usize..40, 0usize..40, 0usize..40),
        (transpose_a, transpose_b, strided) in any::<(bool, bool, bool)>(),
        dtype in dtype(),
        seed: u64,
    ) {
        // Every second row of a larger array, transposed if the operator is to transpose it back.
        let matrix = |rows: usize, columns: usize, transposed: bool, seed: u64| {
            let (r, c) = if transposed { (columns, rows) } else { (rows, columns) };
            if strided {
                random(&[r, 2, c], dtype, seed).slice(1, 1..2).unwrap().reshape([r, c]).unwrap()
            } else {
                random(&[c, r], dtype, seed).transpose(0, 1).unwrap()
            }
        };
        let plain = |array: &Array, transposed: bool| {
            values(&if transposed { array.transpose(0, 1).unwrap() } else { array.clone() })
        };
        let (a, b) = (matrix(m, k, transpose_a, seed), matrix(k, n, transpose_b, !seed));
        let out = ops::matmul(&a, &b, transpose_a, transpose_b).unwrap();
        prop_assert_eq!(out.dims(), [m, n]);
        let expected = product(&plain(&a, transpose_a), &plain(&b, transpose_b), (m, k, n));
        let expected = Array::from_slice(&expected, [m, n], &CPU).unwrap();
        let error = out.cast(DType::F64).unwrap().relative_error(&expected).unwrap();
        prop_assert!(error <= tolerance(dtype), "{m}×{k} by {k}×{n}: {error:e}");
    }

    #[test]
    fn leading_axes_broadcast(
        (outer, inner) in (1usize..4, 1usize..4),
        (m, k, n) in (1usize..6, 1usize..6, 1usize..6),
        (share_outer, share_inner) in any::<(bool, bool)>(),
        seed: u64,
    ) {
        let a = random(&[outer, inner, m, k], DType::F64, seed);
        let leading = [if share_outer { 1 } else { outer }, if share_inner { 1 } else { inner }];
        let b = random(&[leading[0], leading[1], k, n], DType::F64, !seed);
        let out = values(&ops::matmul(&a, &b, false, false).unwrap());
        let (a, b) = (values(&a), values(&b));
        for o in 0..outer {
            for i in 0..inner {
                let at = (if share_outer { 0 } else { o }) * leading[1] + if share_inner { 0 } else { i };
                let expected = product(
                    &a[(o * inner + i) * m * k..][..m * k],
                    &b[at * k * n..][..k * n],
                    (m, k, n),
                );
                for (actual, expected) in out[(o * inner + i) * m * n..][..m * n].iter().zip(&expected) {
                    prop_assert!((actual - expected).abs() <= 1e-12 * expected.abs().max(1.0));
                }
            }
        }
    }

    #[test]
    fn softmax_is_its_definition(
        (rows, columns) in (0usize..7, 1usize..50),
        axis in 0usize..2,
        // Far beyond the range of exp: only the differences count.
        (shift, scale) in (-1e4f64..1e4, 0.1f64..30.0),
        seed: u64,
    ) {
        let x = ops::add_scalar(&ops::mul_scalar(&random(&[rows, columns], DType::F64, seed), scale).unwrap(), shift);
        let x = x.unwrap();
        let (soft, log) = (ops::softmax(&x, axis).unwrap(), ops::log_softmax(&x, axis).unwrap());
        let lines = |array: &Array| -> Vec<Vec<f64>> {
            let array = if axis == 0 { array.transpose(0, 1).unwrap() } else { array.clone() };
            let length = array.dims()[1];
            values(&array).chunks(length.max(1)).map(<[f64]>::to_vec).collect()
        };
        for ((x, soft), log) in lines(&x).iter().zip(lines(&soft)).zip(lines(&log)) {
            let greatest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = x.iter().map(|x| (x - greatest).exp()).sum();
            prop_assert!((soft.iter().sum::<f64>() - 1.0).abs() <= 1e-13);
            for ((x, soft), log) in x.iter().zip(&soft).zip(&log) {
                let expected = x - greatest - total.ln();
                prop_assert!((log - expected).abs() <= 1e-11 * expected.abs().max(1.0));
                prop_assert!((soft - expected.exp()).abs() <= 1e-13, "{soft} against {}", expected.exp());
            }
        }
    }
}

/// Large enough to be cut into tasks.
#[test]
fn large_products_agree() {
    for dtype in [DType::F32, DType::F64] {
        let (a, b) = (random(&[301, 257], dtype, 1), random(&[257, 263], dtype, 2));
        let expected =
            Array::from_slice(&product(&values(&a), &values(&b), (301, 257, 263)), [301, 263], &CPU).unwrap();
        let out = ops::matmul(&a, &b, false, false).unwrap().cast(DType::F64).unwrap();
        let error = out.relative_error(&expected).unwrap();
        assert!(error <= tolerance(dtype), "{dtype}: {error:e}");
    }
}

#[test]
fn masked_rows_have_a_defined_softmax() {
    let masked = f64::NEG_INFINITY;
    let x = Array::from_slice(&[masked, masked, masked, 0.0, masked, 0.0], [2, 3], &CPU).unwrap();
    for dtype in [DType::F64, DType::F32] {
        let x = x.cast(dtype).unwrap();
        assert_eq!(values(&ops::softmax(&x, 1).unwrap()), [0.0, 0.0, 0.0, 0.5, 0.0, 0.5]);
        let log = values(&ops::log_softmax(&x, 1).unwrap());
        assert!(log[..3].iter().all(|&value| value == masked) && log[4] == masked, "{log:?}");
        assert!((log[3] + 2f64.ln()).abs() < 1e-6);
    }
    // NaN is not masked away.
    let x = Array::from_slice(&[f64::NAN, 0.0], [1, 2], &CPU).unwrap();
    assert!(values(&ops::softmax(&x, 1).unwrap()).iter().any(|value| value.is_nan()));
}

#[test]
fn mistakes_are_named() {
    let refused = |a: &[usize], b: &[usize]| {
        let (a, b) = (random(a, DType::F64, 1), random(b, DType::F64, 2));
        ops::matmul(&a, &b, false, false).unwrap_err()
    };
    for (a, b) in [(&[2, 3][..], &[4, 5][..]), (&[3], &[3, 2]), (&[2, 2, 3], &[3, 3, 2])] {
        let error = refused(a, b);
        let of = match &error {
            Error::Core(CoreError::Shape { operation, .. } | CoreError::Broadcast { operation, .. }) => {
                *operation
            }
            _ => "",
        };
        assert_eq!(of, "matmul", "{error:?}");
    }
    let (a, b) = (random(&[2, 3], DType::F64, 1), random(&[3, 2], DType::F32, 2));
    let error = ops::matmul(&a, &b, false, false).unwrap_err();
    assert!(matches!(error, Error::Core(CoreError::DType { operation: "matmul", .. })), "{error:?}");
    let error = ops::softmax(&a, 2).unwrap_err();
    assert!(matches!(error, Error::Core(CoreError::Axis { axis: 2, .. })), "{error:?}");
}
