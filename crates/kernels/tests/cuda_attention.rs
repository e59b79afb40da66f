//! Attention on every device, against all of the weights in memory, in double precision on the CPU.

#[path = "common/attention.rs"]
mod cases;
mod common;

use cases::{Case, check, fused, one_of};
use common::{for_all, launched};
use gradewise_kernels::{
    Array, Compute, DType, Device, Index, debug,
    ops::{self, AttentionOptions},
};
use rand::RngExt;

fn any_case() {
    for_all(40, |device, dtype, rng, context| check(&Case::draw(rng), dtype, device, rng, context));
}

/// Sizes that the kernels of warpgroups take, which have tiles of 64 and 128 tokens.
fn some_tiles_of_tokens() {
    for_all(8, |device, dtype, rng, context| {
        let features = one_of(rng, &[40, 64, 72, 128]);
        let mut tokens =
            || if rng.random_bool(0.5) { 64 * rng.random_range(2..7) } else { rng.random_range(128..400) };
        let sizes = [tokens(), tokens(), features];
        check(&Case::of_sizes(sizes, rng), dtype, device, rng, context);
    });
}

fn long_sequences() {
    let case = Case {
        batch: 1,
        heads: 2,
        shared: 1,
        queries: 500,
        keys: 500,
        features: 64,
        values: None,
        causal: false,
        lengths: None,
        mask: None,
        scale: None,
        beside: true,
        starts: None,
        dropout: None,
    };
    for_all(1, |device, dtype, rng, context| {
        for causal in [false, true] {
            for (queries, features) in [(500, 64), (513, 128), (384, 128), (300, 32)] {
                let case = Case { queries, features, causal, ..case.clone() };
                check(&case, dtype, device, rng, context);
            }
        }
    });
}

/// Features and tokens around the sizes of the kernels for f32, in both precisions of products, and causal or not.
fn sizes_of_f32_by_matrix_instructions() {
    for_all(2, |device, dtype, rng, context| {
        if dtype != DType::F32 {
            return;
        }
        for features in [4, 32, 33, 36, 48, 52, 64, 80, 96, 100, 128] {
            for tokens in [[1, 1], [63, 65], [64, 16], [33, 200], [130, 47]] {
                let case = Case::of_sizes([tokens[0], tokens[1], features], rng);
                check(&case, dtype, device, rng, context);
                // A head of each batch is beside the others, as PyTorch has them.
                let case = Case { beside: true, mask: None, causal: tokens[0] % 2 == 1, ..case };
                Compute::Tf32.scope(|| check(&case, dtype, device, rng, context));
                let case = Case { values: Some(96), lengths: None, ..case };
                check(&case, dtype, device, rng, context);
                Compute::Tf32.scope(|| check(&case, dtype, device, rng, context));
            }
        }
    });
}

fn f32_is_multiplied_by_matrix_instructions(device: &Device) {
    let Device::Cuda(cuda) = device else { return };
    if cuda.info().compute_capability.0 < 8 {
        return;
    }
    debug::set(true);
    let rng = &mut common::rng(5);
    for (features, compute, engine) in [
        (36, Compute::Tf32, "warp_fwd_48"),
        (36, Compute::Exact, "warp_exact_fwd_48"),
        (80, Compute::Tf32, "warp_fwd_96"),
        (96, Compute::Exact, "warp_exact_fwd_96"),
        (128, Compute::Tf32, "warp_fwd_128"),
        (128, Compute::Exact, "simt_fwd_128"),
        (37, Compute::Tf32, "simt_fwd_64"),
    ] {
        let case = Case { beside: true, ..Case::of_sizes([70, 90, features], rng) };
        let operands = case.operands(DType::F32, rng).map(|x| x.to_device(device).unwrap());
        let ((), launches) = launched(|| compute.scope(|| drop(fused(&case, &operands))));
        let name = format!("gw_attention_{engine}_f32");
        let is_there = launches.iter().any(|work| work.split(' ').next() == Some(name.as_str()));
        assert!(is_there, "{name}: {launches:?}");
    }
}

/// What the copies of 16 bytes do not take is computed by multiply-adds, and in TF32 as exactly as without.
fn rows_without_alignment(device: &Device) {
    let rng = &mut common::rng(3);
    for features in [36, 80] {
        let case = Case { beside: false, ..Case::of_sizes([70, 90, features], rng) };
        let operands = case.operands(DType::F32, rng).map(|x| x.to_device(device).unwrap());
        let shifted = operands.each_ref().map(|x| {
            let before = Array::zeros([1], DType::F32, device).unwrap();
            let flat = x.contiguous().unwrap().reshape([x.elements()]).unwrap();
            let both = ops::concat(&[&before, &flat], 0).unwrap();
            both.slice(0, 1..x.elements() + 1).unwrap().reshape(x.dims().to_vec()).unwrap()
        });
        let (found, again) = (fused(&case, &shifted), Compute::Tf32.scope(|| fused(&case, &shifted)));
        assert!(found == again, "{case:?}");
        let (exact, _) = cases::plain(&case, &case_in_double(&shifted));
        for ((what, found), (_, exact)) in found.iter().zip(&exact) {
            let scale = cases::norm(exact).max(1.0);
            assert!(cases::distance(found, exact) <= 1e-4 * scale, "{what} {case:?}");
        }
    }
}

fn case_in_double(operands: &[Array; 4]) -> [Array; 4] {
    operands.each_ref().map(|x| x.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap())
}

fn sharp_weights_and_rows_that_see_nothing() {
    for_all(1, |device, dtype, _, context| {
        // Products of ±1e4: all of the weight is on one key.
        let (one, ten) = (1.0, 100.0);
        let q = Array::from_f64(&[ten, -ten, ten, 0.0], [1, 1, 4, 1], dtype, device).unwrap();
        let k = Array::from_f64(&[ten, -ten, 0.0], [1, 1, 3, 1], dtype, device).unwrap();
        let v = Array::from_f64(&[1.0, 2.0, 4.0], [1, 1, 3, 1], dtype, device).unwrap();
        let options = AttentionOptions { scale: Some(one), ..AttentionOptions::default() };
        let found = ops::attention(&q, &k, &v, &options).unwrap();
        let output = found.output.to_f64_vec().unwrap();
        assert!(
            output[..3] == [1.0, 2.0, 1.0] && (output[3] - 7.0 / 3.0).abs() < 0.02,
            "{output:?}, {context}"
        );
        let sums = found.log_sum_exp.to_f64_vec().unwrap();
        assert!((sums[0] - 1e4).abs() < 1.0 && (sums[3] - 3f64.ln()).abs() < 1e-5, "{sums:?}, {context}");
        // Four queries, three keys, causal: the first sees nothing; nor does any, without keys.
        for (keys, nothing) in [(3, 1), (0, 4)] {
            let lengths = Some(Index::new(&[keys], 4, device).unwrap());
            let options = AttentionOptions { causal: true, lengths, ..options.clone() };
            let found = ops::attention(&q, &k, &v, &options).unwrap();
            let gradients = ops::attention_backward([&q, &k, &v], &options, &found, &v_like(&q)).unwrap();
            assert_eq!(found.output.to_f64_vec().unwrap()[..nothing], vec![0.0; nothing], "{context}");
            assert!(
                found.log_sum_exp.to_f64_vec().unwrap()[..nothing]
                    .iter()
                    .all(|&sum| sum == f64::NEG_INFINITY)
            );
            assert_eq!(gradients.q.to_f64_vec().unwrap()[..nothing], vec![0.0; nothing], "{context}");
            for gradient in [gradients.k, gradients.v] {
                let values = gradient.to_f64_vec().unwrap();
                assert!(values.iter().all(|value| value.is_finite()), "{context}");
                assert!(keys > 0 || values.iter().all(|&value| value == 0.0), "{context}");
            }
        }
    });
}

fn v_like(q: &Array) -> Array {
    q.full_like(1.0).unwrap()
}

fn nothing_at_all() {
    for_all(1, |device, dtype, _, context| {
        let ones = |shape: [usize; 4]| Array::ones(shape, dtype, device).unwrap();
        // Heads of the queries and of the keys, tokens of both, features of the values.
        let cases = [
            (0, [2, 2], [3, 3], 8),
            (2, [0, 0], [3, 3], 8),
            (2, [0, 2], [3, 3], 8),
            (2, [2, 2], [0, 3], 8),
            (2, [2, 2], [3, 0], 8),
            (2, [2, 1], [3, 3], 0),
        ];
        for case @ (batch, [heads, shared], [queries, keys], features) in cases {
            let (q, k) = (ones([batch, heads, queries, 8]), ones([batch, shared, keys, 8]));
            let v = ones([batch, shared, keys, features]);
            let options = AttentionOptions::default();
            let forward = ops::attention(&q, &k, &v, &options).unwrap();
            assert!(forward.output.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
            let grad = forward.output.clone();
            let gradients = ops::attention_backward([&q, &k, &v], &options, &forward, &grad).unwrap();
            for (gradient, operand) in [(gradients.q, q), (gradients.k, k), (gradients.v, v)] {
                assert_eq!(gradient.shape(), operand.shape(), "{case:?}, {context}");
                let values = gradient.to_f64_vec().unwrap();
                assert!(values.iter().all(|&value| value == 0.0), "{case:?}, {context}: {values:?}");
            }
        }
    });
}

fn packed_gradients_are_those_of_the_parts() {
    for_all(4, |device, dtype, rng, context| {
        let (tokens, heads, features) = (one_of(rng, &[1, 7, 64, 70]), 2, one_of(rng, &[5, 32, 64]));
        let mut draw = |shape: &[usize]| {
            Array::randn(shape, DType::F64, &Device::Cpu, rng)
                .unwrap()
                .cast(dtype)
                .unwrap()
                .to_device(device)
                .unwrap()
        };
        let packed = draw(&[2, tokens, 3, heads, features]);
        let grad = draw(&[2, heads, tokens, features]);
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let [q, k, v] = ops::attention::unpack(&packed).unwrap();
        let forward = ops::attention(&q, &k, &v, &options).unwrap();
        let parts = ops::attention_backward([&q, &k, &v], &options, &forward, &grad).unwrap();
        let whole = ops::attention_backward_packed(&packed, &options, &forward, &grad).unwrap();
        let values = |x: &Array| x.to_f64_vec().unwrap();
        for (whole, part) in ops::attention::unpack(&whole).unwrap().iter().zip([parts.q, parts.k, parts.v]) {
            assert_eq!(values(whole), values(&part), "{tokens} tokens, {context}");
        }
    });
}

fn same_inputs_same_bits(device: &Device) {
    let rng = &mut common::rng(1);
    for (dtype, features) in DType::ALL.into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 128)]) {
        let case = Case::of_sizes([200, 330, features], rng);
        let operands = case.operands(dtype, rng).map(|x| x.to_device(device).unwrap());
        let first = fused(&case, &operands);
        for _ in 0..3 {
            assert!(fused(&case, &operands) == first, "{case:?} {dtype}");
        }
    }
}

fn what_does_not_fit_is_named() {
    let zeros = |shape: [usize; 4]| Array::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let (q, k) = (zeros([2, 4, 3, 8]), zeros([2, 2, 5, 8]));
    let message = |q: &Array, k: &Array, v: &Array, options: &AttentionOptions| {
        ops::attention(q, k, v, options).unwrap_err().to_string()
    };
    let plain = AttentionOptions::default();
    assert!(ops::attention(&q, &k, &k, &plain).is_ok());
    assert!(message(&q, &zeros([2, 3, 5, 8]), &zeros([2, 3, 5, 8]), &plain).contains("a divisor of 4"));
    assert!(message(&q, &k, &zeros([2, 2, 6, 8]), &plain).contains("a value for each key"));
    let scale = AttentionOptions { scale: Some(0.0), ..plain.clone() };
    assert!(message(&q, &k, &k, &scale).contains("more than 0"));
    let lengths = Some(Index::new(&[1, 6], 7, &Device::Cpu).unwrap());
    assert!(
        message(&q, &k, &k, &AttentionOptions { lengths, ..plain.clone() }).contains("number of keys + 1")
    );
    let mask = Some(Array::ones([2, 4], DType::F32, &Device::Cpu).unwrap());
    assert!(message(&q, &k, &k, &AttentionOptions { mask, ..plain }).contains("an entry for each key"));
}

gradewise_testing::main!(
    any_case,
    some_tiles_of_tokens,
    long_sequences,
    sizes_of_f32_by_matrix_instructions,
    f32_is_multiplied_by_matrix_instructions,
    rows_without_alignment,
    sharp_weights_and_rows_that_see_nothing,
    nothing_at_all,
    packed_gradients_are_those_of_the_parts,
    same_inputs_same_bits,
    what_does_not_fit_is_named,
);
