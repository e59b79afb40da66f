//! Attention with dropout and of packed sequences on every device: against the definition, and the same weights dropped by all kernels.

#[path = "common/attention.rs"]
mod cases;
mod common;

use cases::{Case, check, distance, fused, norm, one_of};
use common::{for_all, launched, rng, tolerance};
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, Error, build_info, debug,
    ops::{
        self, AttentionOptions, RandomStream,
        attention::{AttentionDropout, Sequences},
    },
};
use rand::{Rng, RngExt};
use std::collections::BTreeSet;

fn dropout(p: f64, seed: u64, stream: u64) -> Option<AttentionDropout> {
    Some(AttentionDropout { p, random: RandomStream { seed, stream } })
}

fn any_case() {
    for_all(60, |device, dtype, rng, context| {
        let case = Case::draw(rng).generalized(rng);
        check(&case, dtype, device, rng, context);
    });
}

/// Sizes that the kernels of warpgroups take.
fn some_tiles_of_tokens() {
    for_all(16, |device, dtype, rng, context| {
        let features = one_of(rng, &[40, 64, 72, 128]);
        let mut tokens =
            || if rng.random_bool(0.5) { 64 * rng.random_range(2..7) } else { rng.random_range(128..400) };
        let sizes = [tokens(), tokens(), features];
        check(&Case::of_sizes(sizes, rng).generalized(rng), dtype, device, rng, context);
    });
}

fn many_short_sequences_and_a_long_one() {
    for_all(1, |device, dtype, rng, context| {
        for (causal, features) in [(false, 64), (true, 64), (true, 128), (false, 32), (true, 65)] {
            // Of 0 to 6 tokens each, then 301.
            let mut starts = vec![0];
            for at in 0..60 {
                starts.push(starts[at] + at % 7);
            }
            starts.push(starts[60] + 301);
            let tokens = starts[61];
            let case = Case {
                batch: 2,
                heads: 2,
                shared: 1,
                causal,
                lengths: None,
                mask: None,
                starts: Some([starts.clone(), starts]),
                dropout: None,
                ..Case::of_sizes([tokens, tokens, features], rng)
            };
            check(&case, dtype, device, rng, context);
            let case = Case { dropout: dropout(0.2, 5, 6), ..case };
            check(&case, dtype, device, rng, context);
        }
    });
}

/// For tools that slow every instruction down.
fn a_small_case_of_every_kernel() {
    for_all(1, |device, dtype, rng, context| {
        // The last two are for warpgroups.
        for sizes in [[20, 35, 30], [33, 40, 64], [17, 50, 128], [130, 150, 64], [200, 129, 128]] {
            let [queries, keys, _] = sizes;
            let case = Case {
                batch: 1,
                heads: 2,
                shared: 1,
                causal: queries == 33 || queries == 200,
                lengths: None,
                mask: None,
                starts: Some([
                    vec![0, queries / 3, queries / 3, queries],
                    vec![0, keys / 2, keys / 2 + 1, keys],
                ]),
                dropout: dropout(0.3, 1, 2),
                ..Case::of_sizes(sizes, rng)
            };
            check(&case, dtype, device, rng, context);
        }
    });
}

/// The sizes of a problem whose results show its mask: `[batch, heads, queries, keys, features]`, and the dtype.
type Shown = ([usize; 5], DType);

/// Problems for each engine: ordinary arithmetic; matrix instructions of warps, for short sequences; of warpgroups.
fn shown() -> Vec<Shown> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        all.extend([
            ([2, 2, 70, 50, 32], dtype),
            ([1, 1, 33, 130, 64], dtype),
            ([1, 2, 130, 96, 128], dtype),
        ]);
    }
    for dtype in [DType::BF16, DType::F16] {
        all.extend([([1, 2, 40, 50, 33], dtype), ([2, 1, 100, 100, 65], dtype)]);
        all.extend([32, 64, 128].map(|features| ([2, 2, 130, 100, features], dtype)));
        all.extend([64, 128].map(|features| ([2, 2, 330, 401, features], dtype)));
        all.push(([1, 3, 128, 1000, 72], dtype));
    }
    all
}

/// The mask of a forward pass, read off its outputs: with queries of zeros all weights are equal, and values that are 1 in one place show
/// one weight each.
fn mask_of_forward(
    ([batch, heads, queries, keys, features], dtype): Shown,
    options: &AttentionOptions,
    device: &Device,
) -> Vec<bool> {
    let zeros = |tokens| Array::zeros([batch, heads, tokens, features], dtype, device).unwrap();
    let (q, k) = (zeros(queries), zeros(keys));
    let mut dropped = vec![false; batch * heads * queries * keys];
    for first in (0..keys).step_by(features) {
        let width = features.min(keys - first);
        let out =
            ops::attention(&q, &k, &windows([batch, heads, keys, features], first, dtype, device), options)
                .unwrap();
        for (row, values) in out.output.to_f64_vec().unwrap().chunks(features).enumerate() {
            for (at, &value) in values[..width].iter().enumerate() {
                dropped[row * keys + first + at] = value == 0.0;
            }
        }
    }
    dropped
}

/// 1 for feature f of token `first` + f, 0 elsewhere.
fn windows(
    [batch, heads, tokens, features]: [usize; 4],
    first: usize,
    dtype: DType,
    device: &Device,
) -> Array {
    let one = |i: usize| f64::from(i / features % tokens == first + i % features);
    let values: Vec<f64> = (0..batch * heads * tokens * features).map(one).collect();
    Array::from_f64(&values, [batch, heads, tokens, features], dtype, device).unwrap()
}

/// As [`mask_of_forward`], of the gradient of the values.
fn mask_of_backward(
    ([batch, heads, queries, keys, features], dtype): Shown,
    options: &AttentionOptions,
    device: &Device,
) -> Vec<bool> {
    let zeros = |tokens| Array::zeros([batch, heads, tokens, features], dtype, device).unwrap();
    let (q, k) = (zeros(queries), zeros(keys));
    let forward = ops::attention(&q, &k, &k, options).unwrap();
    let mut dropped = vec![false; batch * heads * queries * keys];
    for first in (0..queries).step_by(features) {
        let width = features.min(queries - first);
        let grad = windows([batch, heads, queries, features], first, dtype, device);
        let gradients = ops::attention_backward([&q, &k, &k], options, &forward, &grad).unwrap();
        for (row, values) in gradients.v.to_f64_vec().unwrap().chunks(features).enumerate() {
            let (head, key) = (row / keys, row % keys);
            for (at, &value) in values[..width].iter().enumerate() {
                dropped[(head * queries + first + at) * keys + key] = value == 0.0;
            }
        }
    }
    dropped
}

fn check_masks(device: &Device, shown: Shown) {
    let ([batch, heads, queries, keys, _], dtype) = shown;
    for (p, seed, stream) in [(0.1, 3, 4), (0.7, u64::MAX, 1 << 63 | 5)] {
        let options = AttentionOptions { dropout: dropout(p, seed, stream), ..AttentionOptions::default() };
        let mask =
            options.dropout.unwrap().mask([batch, heads, queries, keys], DType::F64, &Device::Cpu).unwrap();
        let expected: Vec<bool> =
            mask.to_vec::<f64>().unwrap().into_iter().map(|factor| factor == 0.0).collect();
        let differ = |found: &[bool]| found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        let forward = differ(&mask_of_forward(shown, &options, device));
        let backward = differ(&mask_of_backward(shown, &options, device));
        assert_eq!((forward, backward), (0, 0), "of {}: {shown:?} {dtype} on {device}", expected.len());
    }
}

fn the_host_drops_what_the_mask_says() {
    for shown in shown() {
        if shown.1 == DType::F32 || shown.1 == DType::F64 {
            check_masks(&Device::Cpu, shown);
        }
    }
}

fn every_engine_drops_what_the_mask_says(device: &CudaDevice) {
    debug::set(true);
    let device_of = Device::Cuda(device.clone());
    let mut engines = BTreeSet::new();
    for shown in shown() {
        let ((), launches) = launched(|| check_masks(&device_of, shown));
        let name =
            |work: &String| Some(work.strip_prefix("gw_attention_")?.split("_general_").next()?.to_owned());
        engines.extend(launches.iter().filter(|work| work.contains("_general_")).filter_map(name));
    }
    let mut expected = BTreeSet::from(["simt".to_owned()]);
    let capability = device.info().compute_capability;
    if capability.0 >= 8 {
        expected.insert("warp".to_owned());
    }
    if capability == (9, 0) && build_info().targets.contains(&"90a") && device.options().attention_warpgroups
    {
        expected.insert("hopper".to_owned());
    }
    assert_eq!(engines, expected);
}

/// A part of the tokens of q, k, v or a gradient.
fn tokens(array: &Array, range: std::ops::Range<usize>) -> Array {
    array.slice(2, range).unwrap().contiguous().unwrap()
}

fn packed_sequences_are_those_sequences() {
    for_all(3, |device, dtype, rng, context| {
        for features in [24, 64, 128] {
            let starts = [vec![0, 70, 70, 75, 212, 213, 360], vec![0, 10, 31, 31, 200, 201, 401]];
            let case = Case {
                lengths: None,
                mask: None,
                starts: Some(starts.clone()),
                ..Case::of_sizes([360, 401, features], rng)
            };
            let operands = case.operands(dtype, rng).map(|x| x.to_device(device).unwrap());
            let packed = fused(&case, &operands);
            let mut parts: [Vec<Array>; 4] = Default::default();
            for at in 0..starts[0].len() - 1 {
                let [queries, keys] = starts.each_ref().map(|starts| starts[at]..starts[at + 1]);
                let [q, k, v, grad] = &operands;
                let [q, grad] = [q, grad].map(|x| tokens(x, queries.clone()));
                let [k, v] = [k, v].map(|x| tokens(x, keys.clone()));
                let options = AttentionOptions { sequences: None, ..case.options(dtype, device) };
                let forward = ops::attention(&q, &k, &v, &options).unwrap();
                let of = ops::attention_backward([&q, &k, &v], &options, &forward, &grad).unwrap();
                for (parts, part) in parts.iter_mut().zip([forward.output, of.q, of.k, of.v]) {
                    parts.push(part.contiguous().unwrap());
                }
            }
            for ((what, packed), parts) in packed.iter().zip(&parts) {
                let apart = ops::concat(&parts.iter().collect::<Vec<_>>(), 2).unwrap().to_f64_vec().unwrap();
                let (found, size) = (distance(packed, &apart), norm(&apart));
                assert!(
                    found <= 4.0 * tolerance(dtype) * size,
                    "{what}: {found:e} of {size:e}, {case:?}, {context}"
                );
            }
        }
    });
}

/// Of one sequence and of a probability that rounds to 0, by the other kernels.
fn what_is_general_in_name_only_gives_the_same() {
    for_all(2, |device, dtype, rng, context| {
        for sizes in [[200, 330, 64], [130, 130, 128], [65, 40, 24]] {
            let case = Case { lengths: None, mask: None, ..Case::of_sizes(sizes, rng) };
            let operands = case.operands(dtype, rng).map(|x| x.to_device(device).unwrap());
            let plain = fused(&case, &operands);
            let never = Case { dropout: dropout(1e-6, 1, 1), ..case.clone() };
            assert!(fused(&never, &operands) == plain, "{case:?}, {context}");
            let one = Case { starts: Some([vec![0, sizes[0]], vec![0, sizes[1]]]), ..case.clone() };
            for ((what, found), (_, plain)) in fused(&one, &operands).iter().zip(&plain) {
                let bound = 4.0 * tolerance(dtype) * norm(plain);
                assert!(distance(found, plain) <= bound, "{what}: {case:?}, {context}");
            }
        }
    });
}

fn the_mean_over_masks_is_what_is_there_without() {
    let case = Case {
        batch: 1,
        heads: 2,
        shared: 1,
        lengths: None,
        mask: None,
        ..Case::of_sizes([20, 30, 8], &mut rng(3))
    };
    let operands = case.operands(DType::F64, &mut rng(4));
    let plain = fused(&case, &operands);
    const DRAWS: usize = 600;
    let mut sums = plain.clone().map(|(_, values)| vec![[0.0; 2]; values.len()]);
    for stream in 0..DRAWS {
        let drawn = fused(&Case { dropout: dropout(0.25, 8, stream as u64), ..case.clone() }, &operands);
        for (sums, (_, values)) in sums.iter_mut().zip(drawn) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
    }
    // The output and the gradient of the values are linear in the mask; those of queries and keys are not.
    for at in [0, 3] {
        let (mut off, mut expected) = (0.0, 0.0);
        for (&[sum, squares], plain) in sums[at].iter().zip(&plain[at].1) {
            let mean = sum / DRAWS as f64;
            off += (mean - plain).powi(2);
            expected += (squares / DRAWS as f64 - mean * mean) / DRAWS as f64;
        }
        let ratio = off / expected;
        assert!((0.6..1.6).contains(&ratio), "{}: {ratio} times the variance of a mean", plain[at].0);
    }
}

fn other_streams_drop_others_and_the_same_the_same() {
    for_all(1, |device, dtype, rng, context| {
        let case = Case { lengths: None, mask: None, ..Case::of_sizes([150, 170, 64], rng) };
        let operands = case.operands(dtype, rng).map(|x| x.to_device(device).unwrap());
        let run =
            |seed, stream| fused(&Case { dropout: dropout(0.3, seed, stream), ..case.clone() }, &operands);
        let first = run(1, 1);
        assert!(run(1, 1) == first, "{context}");
        for other in [run(1, 2), run(2, 1), run(1, 1 << 40)] {
            for ((what, a), (_, b)) in first.iter().zip(&other) {
                assert!(distance(a, b) > 0.05 * norm(a), "{what}, {context}");
            }
        }
    });
}

fn same_inputs_same_bits(device: &Device) {
    let rng = &mut rng(1);
    for (dtype, features) in DType::ALL.into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 128)]) {
        for _ in 0..3 {
            let case = Case::of_sizes([200, 330, features], rng).generalized(rng);
            let operands = case.operands(dtype, rng).map(|x| x.to_device(device).unwrap());
            let first = fused(&case, &operands);
            for _ in 0..3 {
                assert!(fused(&case, &operands) == first, "{case:?} {dtype}");
            }
        }
    }
}

fn captured_sequences_can_be_replaced(device: &CudaDevice) {
    let there = Device::Cuda(device.clone());
    let mut rng = rng(2);
    let mut draw = || random(&[1, 2, 200, 64], &there, &mut rng);
    let (q, k, v) = (draw(), draw(), draw());
    let sequences = Sequences::alike(&[0, 50, 120, 200], &there).unwrap();
    let options =
        AttentionOptions { causal: true, sequences: Some(sequences.clone()), ..AttentionOptions::default() };
    let run = || ops::attention(&q, &k, &v, &options).map(|found| found.output);
    run().unwrap();
    let (output, graph) = device.capture(run).unwrap();
    for starts in [[0, 50, 120, 200], [0, 0, 7, 200]] {
        assert!(sequences.overwrite(&Sequences::alike(&starts, &Device::Cpu).unwrap()).unwrap());
        graph.replay().unwrap();
        assert_eq!(output.to_f64_vec().unwrap(), run().unwrap().to_f64_vec().unwrap(), "{starts:?}");
    }
    let options = AttentionOptions { dropout: dropout(0.5, 1, 1), ..options.clone() };
    let refused = device.capture(|| ops::attention(&q, &k, &v, &options)).map(drop);
    assert!(matches!(refused, Err(Error::InCapture { operation: "attention" })), "{refused:?}");
}

fn random(shape: &[usize], device: &Device, rng: &mut impl Rng) -> Array {
    let values = Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap();
    values.cast(DType::BF16).unwrap().to_device(device).unwrap()
}

fn what_does_not_fit_is_named() {
    let zeros = |tokens| Array::zeros([1, 2, tokens, 8], DType::F32, &Device::Cpu).unwrap();
    let (q, k) = (zeros(5), zeros(7));
    let message = |options: &AttentionOptions| ops::attention(&q, &k, &k, options).unwrap_err().to_string();
    let with = |queries: &[usize], keys: &[usize]| AttentionOptions {
        sequences: Some(Sequences::new(queries, keys, &Device::Cpu).unwrap()),
        ..AttentionOptions::default()
    };
    assert!(ops::attention(&q, &k, &k, &with(&[0, 2, 5], &[0, 2, 7])).is_ok());
    for (queries, keys) in [([0, 2, 4], [0, 2, 7]), ([0, 2, 5], [0, 2, 8])] {
        let message = message(&with(&queries, &keys));
        assert!(
            message.contains("end at the number of tokens") && message.contains("of 5 and 7"),
            "{message}"
        );
    }
    for p in [1.0, -0.5, f64::NAN] {
        let options = AttentionOptions { dropout: dropout(p, 0, 0), ..AttentionOptions::default() };
        assert!(message(&options).contains("dropout.p"), "{}", message(&options));
    }
}

gradewise_testing::main!(
    any_case,
    some_tiles_of_tokens,
    many_short_sequences_and_a_long_one,
    a_small_case_of_every_kernel,
    the_host_drops_what_the_mask_says,
    every_engine_drops_what_the_mask_says,
    packed_sequences_are_those_sequences,
    what_is_general_in_name_only_gives_the_same,
    the_mean_over_masks_is_what_is_there_without,
    other_streams_drop_others_and_the_same_the_same,
    same_inputs_same_bits,
    captured_sequences_can_be_replaced,
    what_does_not_fit_is_named,
);
