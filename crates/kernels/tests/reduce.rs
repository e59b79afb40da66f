//! Reductions against sums of one element after the other in double precision.

use gradewise_kernels::{Array, DType, Device, Error, Shape, ops};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], dtype: DType, seed: u64) -> Array {
    Array::randn(shape, dtype, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

/// The reduction by its definition, keeping the axes.
fn reference(x: &Array, axes: &[usize], start: f64, combine: fn(f64, f64) -> f64) -> Array {
    let kept: Vec<usize> = x
        .dims()
        .iter()
        .enumerate()
        .map(|(axis, &size)| if axes.contains(&axis) { 1 } else { size })
        .collect();
    let shape = Shape::from(kept);
    let (from, to) = (x.shape().contiguous_strides(), shape.contiguous_strides());
    let mut out = vec![start; shape.elements()];
    for (position, value) in x.to_f64_vec().unwrap().into_iter().enumerate() {
        let place = (0..x.rank())
            .map(|axis| if shape[axis] == 1 { 0 } else { position / from[axis] % x.dims()[axis] * to[axis] })
            .sum::<usize>();
        out[place] = combine(out[place], value);
    }
    Array::from_f64(&out, shape, DType::F64, &CPU).unwrap()
}

fn check(x: &Array, axes: &[usize]) {
    let expected = reference(x, axes, 0.0, |a, b| a + b);
    // Cancellation makes a sum of random signs ill-conditioned: the error is measured against the sum of magnitudes.
    let magnitude = reference(&ops::abs(x).unwrap(), axes, 0.0, |a, b| a + b);
    let sum = ops::sum(x, axes, true).unwrap();
    assert_eq!(sum.shape(), expected.shape());
    let tolerance = if x.dtype() == DType::F64 { 1e-14 } else { 1e-6 };
    let scale = magnitude.to_f64_vec().unwrap().iter().map(|v| v * v).sum::<f64>().sqrt();
    let difference = ops::sub(&sum.cast(DType::F64).unwrap(), &expected).unwrap();
    let norm = difference.to_f64_vec().unwrap().iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!(norm <= tolerance * scale, "sum of {x:?} over {axes:?}: {norm:e} of {scale:e}");

    let dropped = ops::sum(x, axes, false).unwrap();
    assert_eq!(dropped.rank(), x.rank() - axes.len());
    assert_eq!(dropped.to_f64_vec().unwrap(), sum.to_f64_vec().unwrap());
    assert_eq!(ops::sum_to(x, expected.shape()).unwrap().to_f64_vec().unwrap(), sum.to_f64_vec().unwrap());

    let count = (x.elements() / sum.elements().max(1)) as f64;
    let mean = ops::mean(x, axes, true).unwrap().cast(DType::F64).unwrap();
    let scaled = ops::mul_scalar(&expected, 1.0 / count).unwrap();
    assert!(
        ops::sub(&mean, &scaled).unwrap().to_f64_vec().unwrap().iter().map(|v| v * v).sum::<f64>().sqrt()
            <= tolerance * scale / count
    );

    let greatest = reference(x, axes, f64::NEG_INFINITY, f64::max);
    assert_eq!(ops::max_over(x, axes, true).unwrap().to_f64_vec().unwrap(), greatest.to_f64_vec().unwrap());
    let least = reference(x, axes, f64::INFINITY, f64::min);
    assert_eq!(ops::min_over(x, axes, true).unwrap().to_f64_vec().unwrap(), least.to_f64_vec().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_axes_of_any_view(
        sizes in prop::collection::vec(1usize..9, 1..5),
        chosen in prop::collection::vec(any::<bool>(), 5),
        rotation in 0usize..5,
        broadcast in any::<bool>(),
        double in any::<bool>(),
    ) {
        let dtype = if double { DType::F64 } else { DType::F32 };
        let mut x = random(&sizes, dtype, 1);
        let mut order: Vec<usize> = (0..x.rank()).collect();
        order.rotate_left(rotation % x.rank());
        x = x.permute(&order).unwrap();
        if broadcast {
            let mut target = x.dims().to_vec();
            target.insert(0, 3);
            x = x.broadcast_to(target).unwrap();
        }
        let axes: Vec<usize> = (0..x.rank()).filter(|&axis| chosen[axis]).collect();
        check(&x, &axes);
    }
}

#[test]
fn large_reductions_in_every_direction() {
    for dtype in [DType::F32, DType::F64] {
        for shape in [[3, 211, 131], [70_001, 1, 2], [2, 3, 40_000], [1, 90_000, 1], [257, 5, 99]] {
            let x = random(&shape, dtype, 2);
            for axes in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]] {
                check(&x, axes);
                check(&x.permute(&[2, 0, 1]).unwrap(), axes);
            }
        }
    }
}

#[test]
fn long_sums_in_single_precision_stay_accurate() {
    let x = ops::add_scalar(&random(&[3_000_001], DType::F32, 3), 0.1).unwrap();
    let expected = x.to_f64_vec().unwrap().into_iter().sum::<f64>();
    let sum = ops::sum(&x, &[0], false).unwrap().item().unwrap();
    assert!((sum - expected).abs() < 1e-7 * expected.abs(), "{sum} {expected}");
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let x = random(&[8, 2000, 28], DType::F32, 4);
    let all = || {
        [&[0, 1][..], &[2], &[0], &[1], &[0, 1, 2]]
            .map(|axes| ops::sum(&x, axes, false).unwrap().to_vec::<f32>().unwrap())
    };
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let reference = pool(1).install(all);
    for threads in [2, 3, 7] {
        assert_eq!(pool(threads).install(all), reference);
    }
}

#[test]
fn edges() {
    let empty = random(&[0, 3], DType::F32, 1);
    assert_eq!(ops::sum(&empty, &[0], false).unwrap().to_f64_vec().unwrap(), [0.0; 3]);
    assert_eq!(ops::sum(&empty, &[1], false).unwrap().dims(), [0]);
    assert!(ops::mean(&empty, &[0], false).unwrap().to_f64_vec().unwrap().iter().all(|mean| mean.is_nan()));
    assert!(matches!(ops::max_over(&empty, &[0], false), Err(Error::Axes { operation: "max", .. })));

    let x = random(&[2, 3], DType::F32, 2);
    assert_eq!(ops::sum(&x, &[], false).unwrap().to_f64_vec().unwrap(), x.to_f64_vec().unwrap());
    assert!(ops::sum(&x, &[2], false).is_err());
    assert!(matches!(ops::sum(&x, &[1, 1], false), Err(Error::Axes { .. })));
    assert!(ops::sum_to(&x, &Shape::from([2])).is_err());
    assert!(ops::sum_to(&x, &Shape::from([1, 2, 3])).is_err());
    assert!(ops::sum_to(&x, &Shape::from([4, 1])).is_err());

    let nan = Array::from_slice(&[1.0, f64::NAN, 3.0], [3], &CPU).unwrap();
    assert!(ops::max_over(&nan, &[0], false).unwrap().item().unwrap().is_nan());
    assert!(ops::min_over(&nan, &[0], false).unwrap().item().unwrap().is_nan());
}
