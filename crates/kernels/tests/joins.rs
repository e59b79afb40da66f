//! Joining, padding and choosing are undone by slicing; masks are reproducible; layer norm has its moments.

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn slices_of_a_concatenation_are_its_parts(
        sizes in prop::collection::vec(0usize..5, 3),
        lengths in prop::collection::vec(0usize..40, 1..4),
        axis in 0usize..3,
        transposed in any::<bool>(),
    ) {
        let parts: Vec<Array> = lengths.iter().enumerate().map(|(seed, &length)| {
            let mut shape = sizes.clone();
            shape[axis] = length;
            if transposed {
                shape.swap(0, 2);
                random(&shape, DType::F32, seed as u64).transpose(0, 2).unwrap()
            } else {
                random(&shape, DType::F32, seed as u64)
            }
        }).collect();
        let joined = ops::concat(&parts.iter().collect::<Vec<_>>(), axis).unwrap();
        let mut start = 0;
        for part in &parts {
            let end = start + part.dims()[axis];
            prop_assert_eq!(values(&joined.slice(axis, start..end).unwrap()), values(part));
            start = end;
        }
        prop_assert_eq!(joined.dims()[axis], start);
    }

    #[test]
    fn padding_is_the_transpose_of_slicing(
        sizes in prop::collection::vec(1usize..40, 2),
        axis in 0usize..2,
        before in 0usize..5,
        after in 0usize..5,
    ) {
        // ⟨slice(x), y⟩ = ⟨x, pad(y)⟩ for every x and y.
        let y = random(&sizes, DType::F64, 1);
        let mut whole = sizes.clone();
        whole[axis] += before + after;
        let x = random(&whole, DType::F64, 2);
        let dot = |a: &Array, b: &Array| values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum::<f64>();
        let padded = ops::pad(&y, axis, before, whole[axis]).unwrap();
        prop_assert_eq!(padded.dims(), &whole[..]);
        let sliced = x.slice(axis, before..before + sizes[axis]).unwrap();
        prop_assert!((dot(&sliced, &y) - dot(&x, &padded)).abs() < 1e-9);
    }

    #[test]
    fn selection_takes_each_element_from_one_side(rows in 1usize..30, columns in 1usize..30) {
        let (x, y) = (random(&[rows, columns], DType::F32, 3), random(&[columns], DType::F32, 4));
        let mask = ops::greater(&x, &y).unwrap();
        let chosen = ops::select(&mask, &x, &y).unwrap();
        prop_assert_eq!(values(&chosen), values(&ops::max(&x, &y).unwrap()));
        let column = mask.slice(1, 0..1).unwrap();
        let rows_chosen = values(&ops::select(&column, &x, &y).unwrap());
        for (position, value) in rows_chosen.iter().enumerate() {
            let (row, c) = (position / columns, position % columns);
            let expected = if values(&column)[row] != 0.0 { values(&x)[position] } else { values(&y)[c] };
            prop_assert_eq!(*value, expected);
        }
    }

    #[test]
    fn layer_norm_is_its_definition(rows in 1usize..20, features in 1usize..40) {
        for dtype in [DType::F32, DType::F64] {
            let x = ops::add_scalar(&random(&[rows, features], dtype, 5), 3.0).unwrap();
            let (w, b) = (random(&[features], dtype, 6), random(&[features], dtype, 7));
            let result = ops::layer_norm(&x, Some(&w), Some(&b), 1e-5).unwrap();
            let (xs, ws, bs) = (values(&x), values(&w), values(&b));
            let mut expected = vec![];
            for row in xs.chunks(features) {
                let mean = row.iter().sum::<f64>() / features as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / features as f64;
                let normalized = row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
                expected.extend(normalized.zip(ws.iter().zip(&bs)).map(|(x, (w, b))| x * w + b));
            }
            let expected = Array::from_f64(&expected, [rows, features], DType::F64, &CPU).unwrap();
            // A row of one or nearly equal elements is normalised by √ε: rounding of x is amplified by 300.
            let tolerance = match dtype { DType::F64 => 1e-11, _ if features < 8 => 1e-4, _ => 2e-6 };
            prop_assert!(result.output.relative_error(&expected).unwrap() < tolerance);
        }
    }
}

#[test]
fn large_joins_and_copies_run_in_parallel_and_agree() {
    let (a, b) = (random(&[300, 200, 3], DType::F32, 1), random(&[300, 201, 3], DType::F32, 2));
    let joined = ops::concat(&[&a, &b], 1).unwrap();
    assert_eq!(values(&joined.slice(1, 0..200).unwrap()), values(&a));
    assert_eq!(values(&joined.slice(1, 200..401).unwrap()), values(&b));
    let turned = joined.permute(&[1, 2, 0]).unwrap().contiguous().unwrap();
    assert_eq!(values(&turned.permute(&[2, 0, 1]).unwrap()), values(&joined));
    let repeated = b.slice(1, 0..1).unwrap().broadcast_to([300, 401, 3]).unwrap();
    let copy = repeated.contiguous().unwrap();
    assert_eq!(values(&copy.slice(1, 400..401).unwrap()), values(&b.slice(1, 0..1).unwrap()));
    let stacked = ops::stack(&[&a, &a], 3).unwrap();
    assert_eq!(stacked.dims(), [300, 200, 3, 2]);
    assert_eq!(values(&stacked.slice(3, 1..2).unwrap()), values(&a));
}

#[test]
fn a_nan_that_is_not_chosen_does_not_show() {
    let x = Array::from_slice(&[f32::NAN, 2.0], [2], &CPU).unwrap();
    let mask = Array::from_slice(&[0.0f32, 1.0], [2], &CPU).unwrap();
    let zero = Array::scalar(0.0, DType::F32, &CPU).unwrap();
    assert_eq!(values(&ops::select(&mask, &x, &zero).unwrap()), [0.0, 2.0]);
}

#[test]
fn dropout_masks_are_reproducible_and_fair() {
    let mask = |shape: &[usize], seed, stream| {
        ops::dropout_mask(shape, 0.3, ops::RandomStream { seed, stream }, DType::F64, &CPU)
            .unwrap()
            .to_f64_vec()
            .unwrap()
    };
    let large = mask(&[100_003], 1, 0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| mask(&[100_003], 1, 0)), large);
    assert_eq!(mask(&[10, 13], 1, 0), large[..130], "an element depends on its position only");
    assert_ne!(mask(&[100], 1, 1), large[..100]);
    assert_ne!(mask(&[100], 2, 0), large[..100]);
    let kept = 1.0 / 0.7;
    assert!(large.iter().all(|&value| value == 0.0 || value == kept));
    // The mean is 1 with standard error √(0.3/0.7/n) = 0.002.
    let mean = large.iter().sum::<f64>() / large.len() as f64;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
    assert_eq!(
        ops::dropout_mask([5], 0.0, ops::RandomStream { seed: 0, stream: 0 }, DType::F32, &CPU)
            .unwrap()
            .to_f64_vec()
            .unwrap(),
        [1.0; 5]
    );
    for p in [1.0, -0.1, f64::NAN] {
        assert!(matches!(
            ops::dropout_mask([5], p, ops::RandomStream { seed: 0, stream: 0 }, DType::F32, &CPU),
            Err(Error::Argument { argument: "p", .. })
        ));
    }
}

#[test]
fn mistakes_are_named() {
    let (a, b) = (random(&[2, 3], DType::F32, 1), random(&[3, 3], DType::F32, 1));
    assert!(ops::concat(&[&a, &b], 0).is_ok());
    let shapes = |error: &Error| match error {
        Error::Core(CoreError::Shape { argument, actual, expected, .. }) => {
            Some((*argument, actual.to_vec(), expected.clone()))
        }
        _ => None,
    };
    let error = ops::concat(&[&a, &b], 1).unwrap_err();
    assert_eq!(shapes(&error), Some(("arrays", vec![3, 3], "[2, 3]".to_owned())), "{error}");
    assert!(matches!(ops::concat(&[], 0), Err(Error::Argument { .. })));
    assert!(ops::concat(&[&a], 2).is_err());
    assert!(ops::concat(&[&a, &random(&[2], DType::F32, 1)], 1).is_err());
    assert!(ops::concat(&[&a, &a.cast(DType::F64).unwrap()], 0).is_err());
    assert!(ops::stack(&[&a, &b], 0).is_err());
    assert!(matches!(ops::pad(&a, 1, 2, 4), Err(Error::Range { start: 2, end: 5, .. })));
    assert!(ops::pad(&a, 2, 0, 4).is_err());
    assert!(ops::select(&a, &b, &a).is_err());
    let error = ops::layer_norm(&a, Some(&random(&[2], DType::F32, 1)), None, 1e-5).unwrap_err();
    assert_eq!(shapes(&error), Some(("weight", vec![2], "[3]".to_owned())), "{error}");
    assert!(ops::layer_norm(&Array::scalar(1.0, DType::F32, &CPU).unwrap(), None, None, 1e-5).is_err());
}
