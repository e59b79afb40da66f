//! Subnormal numbers count as zero in arithmetic on the CPU, on every thread, and the optimisers store none.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use common::gpu;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device,
    ops::{
        self, AttentionOptions,
        clifford::{
            fcgp,
            mv_linear::{self, Bias},
            mv_silu,
            sgp::{self, ProductOptions},
            steerable_layer,
        },
        optim::{self, Adam, Sgd, WeightDecay},
    },
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::black_box;

/// Numbers whose products in f32 are subnormal.
const SMALL: f64 = 1e-20;

fn small(shape: &[usize], seed: u64) -> Array {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values = Array::randn(shape, DType::F32, &Device::Cpu, &mut rng).unwrap();
    ops::mul_scalar(&values, SMALL).unwrap()
}

fn is_subnormal(value: f32) -> bool {
    value != 0.0 && value.abs() < f32::MIN_POSITIVE
}

/// Whether this thread computes with subnormal numbers, as threads do by default.
fn keeps_subnormals() -> bool {
    black_box(1e-30f32) * black_box(1e-10f32) != 0.0
}

/// What each operator makes of products that are subnormal, by name.
fn results() -> Vec<(&'static str, Array)> {
    let mut results = Vec::new();
    let mut add = |name, array: Array| results.push((name, array));

    // One thread, and enough elements for several.
    for elements in [100, 1 << 18] {
        let (x, y) = (small(&[elements], 1), small(&[elements], 2));
        add("mul", ops::mul(&x, &y).unwrap());
        add("mul_scalar", ops::mul_scalar(&x, SMALL).unwrap());
        add("square", ops::square(&x).unwrap());
        add("mean", ops::mean(&ops::mul_scalar(&x, 1e-18).unwrap(), &[0], false).unwrap());
    }
    for size in [4, 96] {
        let (a, b) = (small(&[3, size, size], 3), small(&[3, size, size], 4));
        add("matmul", ops::matmul(&a, &b, false, false).unwrap());
    }
    let heads = |seed| small(&[2, 4, 64, 16], seed);
    let (q, k, v) = (heads(5), heads(6), heads(7));
    let options = AttentionOptions::default();
    let attention = ops::attention(&q, &k, &ops::mul_scalar(&v, 1e-18).unwrap(), &options).unwrap();
    add("attention", attention.output);

    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    for (rows, n) in [(3, 4), (300, 16)] {
        let (x, y, grad) =
            (small(&[blades, rows, n], 8), small(&[blades, rows, n], 9), small(&[blades, rows, n], 10));
        let ones = |shape: &[usize]| Array::ones(shape, DType::F32, &Device::Cpu).unwrap();

        let w = small(&[grades, n, n], 11);
        add("mv_linear", mv_linear::forward(&algebra, &x, &w, None).unwrap());
        let gradients =
            mv_linear::backward(&algebra, &x, &w, Bias::Scalar, &grad, mv_linear::Needs::ALL).unwrap();
        add("gradient of x in mv_linear", gradients.x.unwrap());
        add("gradient of w in mv_linear", gradients.w.unwrap());

        let w = ones(&[n, paths]);
        let options = ProductOptions::default();
        let operands = sgp::Operands { x: &x, y: &y, w: &w };
        let product = sgp::forward(&algebra, &operands, options).unwrap();
        let gradients =
            sgp::backward(&algebra, &operands, options, &product, &grad, sgp::Needs::ALL).unwrap();
        add("sgp", product.output);
        add("gradient of x in sgp", gradients.x.unwrap());
        add("gradient of w in sgp", gradients.w.unwrap());

        let w = ones(&[paths, n, n]);
        let product = fcgp::forward(&algebra, &sgp::Operands { x: &x, y: &y, w: &w }, options).unwrap();
        add("fcgp", product.output);

        let gates = ones(&[n, grades]);
        let tiny = ops::mul_scalar(&grad, 1e-18).unwrap();
        let gradients = mv_silu::backward(&algebra, &x, &gates, &gates, &tiny).unwrap();
        add("gradient of x in mv_silu", gradients.x);

        let (right, a, w) = (ones(&[grades, n, n]), ones(&[n, grades]), ones(&[n, paths]));
        let operands = steerable_layer::Operands { x: &x, right: &right, a: &a, w: &w, left: None };
        add("steerable_layer", steerable_layer::forward(&algebra, &operands).unwrap());
        let gradients = steerable_layer::backward(&algebra, &operands, &grad).unwrap();
        add("gradient of the matrices in steerable_layer", gradients.right);
    }
    results
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

#[test]
fn no_thread_computes_with_subnormal_numbers_or_stays_in_the_mode() {
    let mut first: Option<Vec<Vec<f32>>> = None;
    for threads in [1, 4] {
        let pool = pool(threads);
        let mut found = Vec::new();
        for (name, array) in pool.install(results) {
            let values: Vec<f32> = array.to_vec().unwrap();
            let count = values.iter().filter(|&&value| is_subnormal(value)).count();
            assert_eq!(
                count,
                0,
                "{name} of shape {}: subnormal numbers with {threads} threads",
                array.shape()
            );
            found.push(values);
        }
        assert!(
            pool.broadcast(|_| keeps_subnormals()).into_iter().all(|kept| kept),
            "a worker stays in the mode"
        );
        match &first {
            None => first = Some(found),
            Some(first) => assert_eq!(first, &found, "results depend on the number of threads"),
        }
    }
    // The caller computes itself where work is small.
    results();
    assert!(keeps_subnormals(), "the caller stays in the mode");
}

#[test]
fn moving_numbers_keeps_them() {
    let values = [1e-40f32, -1e-42, 1.0, 0.0];
    let x = Array::from_slice(&values, [2, 2], &Device::Cpu).unwrap();
    let bits =
        |array: &Array| array.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let turned = x.transpose(0, 1).unwrap().contiguous().unwrap().transpose(0, 1).unwrap();
    assert_eq!(bits(&turned), bits(&x));
    let wide = x.cast(DType::F64).unwrap().cast(DType::F32).unwrap();
    assert_eq!(bits(&wide), bits(&x));
    let (sorted, _) = ops::sort(&x, 1, ops::Order::Ascending).unwrap();
    assert_eq!(sorted.to_vec::<f32>().unwrap(), [-1e-42, 1e-40, 0.0, 1.0]);
}

/// Parameters, a gradient of zero and moments around the smallest normal number.
fn state(dtype: DType, device: &Device) -> [Array; 4] {
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    let around = [1.01, -1.01, 0.3, -0.3, 1e8, 0.0].map(|factor| factor * least);
    let array = |values: &[f64]| Array::from_f64(values, [values.len()], dtype, device).unwrap();
    let zeros = [0.0; 6];
    [array(&around), array(&zeros), array(&around), array(&around.map(f64::abs))]
}

fn assert_normal(what: &str, arrays: &[&Array]) {
    for array in arrays {
        let values = array.to_f64_vec().unwrap();
        let least =
            if array.dtype() == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        assert!(values.iter().all(|&value| value == 0.0 || value.abs() >= least), "{what}: {values:?}");
        assert!(values.iter().any(|&value| value != 0.0), "{what}: what is far from it stays");
    }
}

#[test]
fn optimisers_store_no_subnormal_numbers() {
    let cpu = [DType::F32, DType::F64].map(|dtype| (Device::Cpu, dtype));
    // f16 has no number near the smallest normal one of f32, in which its updates are computed.
    let cuda = gpu()
        .into_iter()
        .flat_map(|device| [DType::F32, DType::F64, DType::BF16].map(|dtype| (device.clone(), dtype)));
    for (device, dtype) in cpu.into_iter().chain(cuda) {
        for decay in [WeightDecay::L2, WeightDecay::Decoupled] {
            let [mut p, g, mut m, mut v] = state(dtype, &device);
            let lr = if decay == WeightDecay::Decoupled { 0.1 } else { 0.0 };
            let constants = Adam { lr, betas: (0.9, 0.999), eps: 1.0, weight_decay: 0.5, decay, step: 100 };
            // The 1.01 least numbers fall below the least normal one: ·0.9 in the first moment, ·0.95 in the weights.
            for _ in 0..20 {
                optim::adam(&constants, &mut p, &g, &mut m, &mut v).unwrap();
            }
            assert_normal("adam", &[&p, &m, &v]);
        }
        let [mut p, g, mut momentum, _] = state(dtype, &device);
        for step in 2..20 {
            let constants = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.0, step };
            optim::sgd(&constants, &mut p, &g, &mut momentum).unwrap();
        }
        assert_normal("sgd", &[&p, &momentum]);
        let [mut average, zeros, ..] = state(dtype, &device);
        for _ in 0..20 {
            optim::ema(0.9, &mut average, &zeros).unwrap();
        }
        assert_normal("ema", &[&average]);
    }
}
