//! Elementwise operators against the same function evaluated one element at a time in double precision, over views
//! and broadcast shapes; sizes go past what runs on one thread.

#[path = "common/graphs.rs"]
mod graphs;

use gradewise_core::Error as CoreError;
use gradewise_kernels::{self as kernels, Array, DType, Device, Error, Result, ops};
use graphs::{Inputs, bits};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rayon::ThreadPoolBuilder;

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], dtype: DType, seed: u64) -> Array {
    Array::randn(shape, dtype, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

/// Views of a [rows, columns] array that walk memory in different ways.
fn views(rows: usize, columns: usize, dtype: DType, seed: u64) -> Vec<Array> {
    let wide = random(&[rows, columns + 3], dtype, seed);
    vec![
        random(&[rows, columns], dtype, seed),
        random(&[columns, rows], dtype, seed).transpose(0, 1).unwrap(),
        wide.slice(1, 2..2 + columns).unwrap(),
        random(&[rows, 1], dtype, seed).broadcast_to([rows, columns]).unwrap(),
        random(&[columns], dtype, seed).broadcast_to([rows, columns]).unwrap(),
    ]
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-14 } else { 1e-6 }
}

type Unary = (&'static str, fn(&Array) -> Result<Array>, fn(f64) -> f64, fn(f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Name, operator, reference, and a map from normal samples into the domain.
const UNARY: &[Unary] = &[
    ("neg", ops::neg, |x| -x, |x| x),
    ("abs", ops::abs, f64::abs, |x| x),
    ("sign", ops::sign, f64::signum, |x| x),
    ("exp", ops::exp, f64::exp, |x| x),
    ("log", ops::log, f64::ln, |x| 1e-3 + x * x),
    ("sqrt", ops::sqrt, f64::sqrt, |x| x * x),
    ("rsqrt", ops::rsqrt, |x| 1.0 / x.sqrt(), |x| 0.1 + x * x),
    ("recip", ops::recip, |x| 1.0 / x, |x| 0.1 + x * x),
    ("square", ops::square, |x| x * x, |x| x),
    ("sin", ops::sin, f64::sin, |x| 10.0 * x),
    ("cos", ops::cos, f64::cos, |x| 10.0 * x),
    ("tanh", ops::tanh, f64::tanh, |x| x),
    ("erf", ops::erf, libm::erf, |x| x),
    ("sigmoid", ops::sigmoid, sigmoid, |x| 3.0 * x),
    ("silu", ops::silu, |x| x * sigmoid(x), |x| 3.0 * x),
    ("gelu", ops::gelu, |x| x * 0.5 * (1.0 + libm::erf(x / 2f64.sqrt())), |x| x),
    ("silu_derivative", ops::silu_derivative, |x| sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))), |x| 3.0 * x),
    (
        "gelu_derivative",
        ops::gelu_derivative,
        |x| {
            0.5 * (1.0 + libm::erf(x / 2f64.sqrt())) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
        },
        |x| x,
    ),
    ("relu", ops::relu, |x| x.max(0.0), |x| x),
    ("not_finite", ops::not_finite, |_| 0.0, |x| x),
    ("add_scalar", |x| ops::add_scalar(x, 1.5), |x| x + 1.5, |x| x),
    ("mul_scalar", |x| ops::mul_scalar(x, -1.5), |x| x * -1.5, |x| x),
    ("clamp", |x| ops::clamp(x, -0.5, 0.25), |x| x.clamp(-0.5, 0.25), |x| x),
    ("pow 3", |x| ops::pow_scalar(x, 3.0), |x| x.powi(3), |x| x),
    ("pow -2", |x| ops::pow_scalar(x, -2.0), |x| x.powi(-2), |x| 0.1 + x.abs()),
    ("pow 0", |x| ops::pow_scalar(x, 0.0), |_| 1.0, |x| x),
    ("pow 2.5", |x| ops::pow_scalar(x, 2.5), |x| x.powf(2.5), |x| x.abs()),
];

fn check_unary((name, operator, reference, domain): &Unary, x: &Array) {
    let inside: Vec<f64> = x.to_f64_vec().unwrap().into_iter().map(domain).collect();
    // The argument is rounded to the dtype first; then laid out like the view under test.
    let flat = Array::from_f64(&inside, x.shape(), x.dtype(), &CPU).unwrap();
    let mut strided = flat.clone();
    if x.rank() == 2 && !x.is_contiguous() {
        strided = flat.transpose(0, 1).unwrap().contiguous().unwrap().transpose(0, 1).unwrap();
    }
    let expected: Vec<f64> = flat.to_f64_vec().unwrap().into_iter().map(reference).collect();
    let expected = Array::from_f64(&expected, x.shape(), DType::F64, &CPU).unwrap();
    let result = operator(&strided).unwrap();
    assert!(result.is_contiguous() && result.dtype() == x.dtype());
    let error = result.relative_error(&expected).unwrap();
    assert!(error < tolerance(x.dtype()), "{name} {:?}: {error:e}", strided);
}

#[test]
fn every_function_agrees_with_its_definition() {
    for dtype in [DType::F32, DType::F64] {
        for function in UNARY {
            for (rows, columns) in [(1, 1), (5, 7), (33, 129), (0, 4)] {
                for x in views(rows, columns, dtype, 1) {
                    check_unary(function, &x);
                }
            }
            check_unary(function, &random(&[70_001], dtype, 2));
            check_unary(function, &Array::scalar(0.75, dtype, &CPU).unwrap());
        }
        let wide = views(301, 257, dtype, 3);
        for x in wide {
            check_unary(&UNARY[3], &x);
        }
    }
}

#[test]
fn functions_keep_nan_and_reach_their_limits() {
    for dtype in [DType::F32, DType::F64] {
        let x = Array::from_f64(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e30], [5], dtype, &CPU)
            .unwrap();
        let at = |operator: fn(&Array) -> Result<Array>| operator(&x).unwrap().to_f64_vec().unwrap();
        for (name, operator, _, _) in
            UNARY.iter().filter(|(name, ..)| !["not_finite", "pow 0"].contains(name))
        {
            assert!(at(*operator)[0].is_nan(), "{name} loses NaN");
        }
        assert_eq!(at(ops::tanh)[1..], [1.0, -1.0, 0.0, 1.0]);
        assert_eq!(at(ops::erf)[1..], [1.0, -1.0, 0.0, 1.0]);
        assert_eq!(at(ops::sigmoid)[1..], [1.0, 0.0, 0.5, 1.0]);
        assert_eq!(at(ops::exp)[1..4], [f64::INFINITY, 0.0, 1.0]);
        assert_eq!(at(ops::sign)[1..4], [1.0, -1.0, 0.0]);
        assert_eq!(at(ops::relu)[1..4], [f64::INFINITY, 0.0, 0.0]);
        assert_eq!(at(ops::not_finite), [1.0, 1.0, 1.0, 0.0, 0.0]);
    }
}

type Binary = (&'static str, fn(&Array, &Array) -> Result<Array>, fn(f64, f64) -> f64);

const BINARY: &[Binary] = &[
    ("add", ops::add, |a, b| a + b),
    ("sub", ops::sub, |a, b| a - b),
    ("mul", ops::mul, |a, b| a * b),
    ("div", ops::div, |a, b| a / b),
    ("max", ops::max, f64::max),
    ("min", ops::min, f64::min),
    ("equal", ops::equal, |a, b| f64::from(a == b)),
    ("not_equal", ops::not_equal, |a, b| f64::from(a != b)),
    ("greater", ops::greater, |a, b| f64::from(a > b)),
    ("greater_equal", ops::greater_equal, |a, b| f64::from(a >= b)),
    ("less", ops::less, |a, b| f64::from(a < b)),
    ("less_equal", ops::less_equal, |a, b| f64::from(a <= b)),
];

fn check_binary((name, operator, reference): &Binary, a: &Array, b: &Array) {
    let shape = a.shape().broadcast(b.shape(), "test").unwrap();
    let values = |array: &Array| array.broadcast_to(&shape).unwrap().to_f64_vec().unwrap();
    let expected: Vec<f64> = values(a).into_iter().zip(values(b)).map(|(a, b)| reference(a, b)).collect();
    let expected = Array::from_f64(&expected, &shape, DType::F64, &CPU).unwrap();
    let result = operator(a, b).unwrap();
    let error = result.relative_error(&expected).unwrap();
    assert!(error < tolerance(a.dtype()), "{name} {a:?} {b:?}: {error:e}");
}

#[test]
fn every_binary_function_on_every_pair_of_views() {
    for dtype in [DType::F32, DType::F64] {
        for function in BINARY {
            for (rows, columns) in [(1, 1), (5, 7), (33, 129), (3, 0)] {
                for a in views(rows, columns, dtype, 1) {
                    for b in views(rows, columns, dtype, 2) {
                        check_binary(function, &a, &b);
                    }
                }
            }
        }
        for a in views(301, 257, dtype, 3) {
            for b in views(301, 257, dtype, 4) {
                check_binary(&BINARY[1], &a, &b);
            }
        }
        check_binary(&BINARY[0], &random(&[70_001], dtype, 5), &random(&[1], dtype, 6));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn broadcasting_follows_numpy(
        sizes in prop::collection::vec(1usize..6, 0..4),
        ones in prop::collection::vec((any::<bool>(), any::<bool>()), 4),
        drop in 0usize..4,
        which in 0..BINARY.len(),
    ) {
        let masked = |left: bool| -> Vec<usize> {
            sizes.iter().zip(&ones).map(|(&size, ones)| if if left { ones.0 } else { ones.1 } { 1 } else { size }).collect()
        };
        let (a, b) = (masked(true), masked(false));
        let b = &b[drop.min(b.len())..];
        check_binary(&BINARY[which], &random(&a, DType::F64, 7), &random(b, DType::F64, 8));
        check_binary(&BINARY[which], &random(b, DType::F32, 9), &random(&a, DType::F32, 10));
    }

    #[test]
    fn adding_in_place_is_adding(rows in 1usize..40, columns in 1usize..40, which in 0usize..5) {
        let a = random(&[rows, columns], DType::F32, 11);
        let b = &views(rows, columns, DType::F32, 12)[which];
        let expected = ops::add(&a, b).unwrap();
        let mut sum = a.contiguous().unwrap();
        ops::add_assign(&mut sum, b).unwrap();
        prop_assert_eq!(sum.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        let mut alone = ops::add_scalar(&a, 0.0).unwrap();
        let address = alone.as_slice::<f32>().unwrap().as_ptr();
        ops::add_assign(&mut alone, b).unwrap();
        prop_assert_eq!(alone.as_slice::<f32>().unwrap().as_ptr(), address);
        prop_assert_eq!(alone.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    }
}

#[test]
fn extrema_keep_nan_from_either_side() {
    let a = Array::from_slice(&[f64::NAN, 1.0, 1.0], [3], &CPU).unwrap();
    let b = Array::from_slice(&[1.0, f64::NAN, 2.0], [3], &CPU).unwrap();
    for operator in [ops::max, ops::min] {
        let values = operator(&a, &b).unwrap().to_f64_vec().unwrap();
        assert!(values[0].is_nan() && values[1].is_nan() && !values[2].is_nan());
    }
}

#[test]
fn mistakes_are_named() {
    let (a, b) = (random(&[2, 3], DType::F32, 1), random(&[2, 4], DType::F32, 1));
    let error = ops::add(&a, &b).unwrap_err();
    let expected =
        CoreError::Broadcast { operation: "add", left: a.shape().clone(), right: b.shape().clone() };
    assert_eq!(error, expected.into());
    let error = ops::mul(&a, &a.cast(DType::F64).unwrap()).unwrap_err();
    let (actual, expected) = (DType::F64, DType::F32);
    assert_eq!(error, CoreError::DType { operation: "mul", argument: "b", actual, expected }.into());
    assert!(ops::add_assign(&mut random(&[3], DType::F32, 1), &a).is_err());
    let error = ops::add_n(&[&a, &a, &b]).unwrap_err();
    let Error::Core(CoreError::Shape { operation: "add_n", actual, expected, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((actual, expected.as_str()), (b.shape(), "[2, 3]"));
    assert!(ops::add_n_assign(&mut a.clone(), &[&b]).is_err(), "nothing is broadcast");
    assert!(ops::add_n(&[&a, &a, &a.cast(DType::F64).unwrap()]).is_err());
    assert!(matches!(ops::add_n(&[]), Err(Error::Argument { operation: "add_n", .. })));
    let half = a.cast(DType::BF16).unwrap();
    assert!(matches!(ops::add_n(&[&half, &half]), Err(Error::UnsupportedDType { operation: "add_n", .. })));
    assert!(matches!(ops::clamp(&a, 1.0, 0.0), Err(Error::Argument { operation: "clamp", .. })));
    assert!(matches!(ops::clamp(&a, f64::NAN, 0.0), Err(Error::Argument { .. })));
}

/// With the instruction set of this machine and with arrays as large as steps have; the unit tests of this crate compute other graphs, of
/// small arrays, by scalar code.
#[test]
fn fused_graphs_have_the_bits_of_their_operators_on_any_number_of_threads() {
    let pools = [1, 2].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    for seed in 0..60 {
        let dtype = [DType::F32, DType::F64][seed as usize % 2];
        let inputs = Inputs::draw(seed, dtype);
        let graph = || graphs::compute(&inputs, &graphs::ALL, seed, 10 + seed as usize % 50);
        let expected = bits(&graph().unwrap());
        for pool in &pools {
            let found = pool.install(|| bits(&CPU.fused(graph).unwrap()));
            assert!(found == expected, "{dtype}, seed {seed}, {} threads", pool.current_num_threads());
        }
    }
}
