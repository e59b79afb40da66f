//! Attention on every device, against all of the weights in memory, in double precision on the CPU.

mod common;

use common::{for_all, tolerance};
use gradewise_kernels::{
    Array, DType, Device, Index,
    ops::{self, Attention, AttentionOptions},
};
use rand::{Rng, RngExt};

/// Sizes of a case and what its queries see.
#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    shared: usize,
    queries: usize,
    keys: usize,
    features: usize,
    causal: bool,
    lengths: Option<Vec<usize>>,
    mask: Option<Vec<f64>>,
    scale: Option<f64>,
    /// Whether heads lie beside each other in memory, as a linear map gives them.
    beside: bool,
}

fn one_of<T: Copy>(rng: &mut impl Rng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

impl Case {
    fn draw(rng: &mut impl Rng) -> Self {
        let queries = one_of(rng, &[1, 2, 15, 33, 64, 65, 130]);
        let keys = one_of(rng, &[queries, queries, 1, 31, 64, 100, 129]);
        let features = one_of(rng, &[1, 3, 8, 24, 32, 33, 64, 72, 128]);
        Self::of_sizes([queries, keys, features], rng)
    }

    fn of_sizes([queries, keys, features]: [usize; 3], rng: &mut impl Rng) -> Self {
        let batch = rng.random_range(1..3);
        let (heads, shared) = one_of(rng, &[(1, 1), (2, 1), (4, 2), (3, 3)]);
        let lengths = rng.random_bool(0.4).then(|| (0..batch).map(|_| rng.random_range(0..=keys)).collect());
        let mask = rng
            .random_bool(0.4)
            .then(|| (0..batch * keys).map(|_| f64::from(rng.random_bool(0.7))).collect());
        Self {
            batch,
            heads,
            shared,
            queries,
            keys,
            features,
            causal: rng.random_bool(0.5),
            lengths,
            mask,
            scale: rng.random_bool(0.3).then_some(0.3),
            beside: rng.random_bool(0.5),
        }
    }

    fn options(&self, dtype: DType, device: &Device) -> AttentionOptions {
        let mask =
            |values: &Vec<f64>| Array::from_f64(values, [self.batch, self.keys], dtype, device).unwrap();
        AttentionOptions {
            causal: self.causal,
            scale: self.scale,
            lengths: self.lengths.as_ref().map(|lengths| Index::new(lengths, self.keys + 1, device).unwrap()),
            mask: self.mask.as_ref().map(mask),
        }
    }

    fn sees(&self, batch: usize, query: usize, key: usize) -> bool {
        self.lengths.as_ref().is_none_or(|lengths| key < lengths[batch])
            && self.mask.as_ref().is_none_or(|mask| mask[batch * self.keys + key] != 0.0)
            && (!self.causal || key + self.queries <= query + self.keys)
    }

    /// Queries, keys, values and a gradient, rounded to the dtype.
    fn operands(&self, dtype: DType, rng: &mut impl Rng) -> [Array; 4] {
        let mut draw = |heads, tokens| {
            let order = if self.beside { [0, tokens, heads] } else { [0, heads, tokens] };
            let shape = [self.batch, order[1], order[2], self.features];
            let array = Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap().cast(dtype).unwrap();
            if self.beside { array.transpose(1, 2).unwrap() } else { array }
        };
        let (q, k, v) =
            (draw(self.heads, self.queries), draw(self.shared, self.keys), draw(self.shared, self.keys));
        [q, k, v, draw(self.heads, self.queries)]
    }
}

type Results = [(&'static str, Vec<f64>); 4];

fn fused(case: &Case, operands: &[Array; 4]) -> Results {
    let [q, k, v, grad] = operands;
    let options = case.options(q.dtype(), &q.device());
    let forward = ops::attention(q, k, v, &options).unwrap();
    let gradients = ops::attention_backward([q, k, v], &options, &forward, grad).unwrap();
    let values = |array: &Array| array.to_f64_vec().unwrap();
    [
        ("output", values(&forward.output)),
        ("gradient of q", values(&gradients.q)),
        ("gradient of k", values(&gradients.k)),
        ("gradient of v", values(&gradients.v)),
    ]
}

/// What the errors of the results are measured by.
struct Condition {
    /// The greatest exponent, by absolute value, of the weights.
    exponent: f64,
    /// Norms of what the results are sums or differences of, for they may cancel: with a single key, to 0.
    parts: [f64; 4],
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The definition, an operator at a time, each result rounded to the dtype of the operands.
fn plain(case: &Case, [q, k, v, grad]: &[Array; 4]) -> (Results, Condition) {
    let Case { batch, heads, shared, queries, keys, features, .. } = *case;
    let (dtype, device) = (q.dtype(), q.device());
    let group = heads / shared;
    let scale = case.scale.unwrap_or((features as f64).sqrt().recip());
    let grouped =
        |x: &Array| x.contiguous().unwrap().reshape([batch, shared, group, queries, features]).unwrap();
    let (q, grad) = (grouped(q), grouped(grad));
    let (k, v) = (k.unsqueeze(2).unwrap(), v.unsqueeze(2).unwrap());
    let at = |batch: usize, query: usize, key: usize| {
        if case.sees(batch, query, key) { 0.0 } else { f64::NEG_INFINITY }
    };
    let bias: Vec<f64> =
        (0..batch * queries * keys).map(|i| at(i / (queries * keys), i / keys % queries, i % keys)).collect();
    let bias = Array::from_f64(&bias, [batch, 1, 1, queries, keys], dtype, &device).unwrap();
    let product = |a: &Array, b: &Array, ta, tb| ops::matmul(a, b, ta, tb).unwrap();
    let scores = ops::mul_scalar(&product(&q, &k, false, true), scale).unwrap();
    let weights = ops::softmax(&ops::add(&scores, &bias).unwrap(), 4).unwrap();
    let output = product(&weights, &v, false, false);
    let grad_weights = ops::mul(&product(&grad, &v, false, true), &weights).unwrap();
    let total = ops::sum(&grad_weights, &[4], true).unwrap();
    let slopes = ops::sub(&grad_weights, &ops::mul(&weights, &total).unwrap()).unwrap();
    let scaled = |x: &Array| ops::mul_scalar(x, scale).unwrap();
    let (slopes, minuends) = (scaled(&slopes), scaled(&grad_weights));
    let values = |x: &Array| x.to_f64_vec().unwrap();
    let over_group = |x: &Array| values(&ops::sum(x, &[2], false).unwrap());
    let (of_k, of_v) = (product(&slopes, &q, true, false), product(&weights, &grad, true, false));
    let condition = Condition {
        exponent: values(&scores).into_iter().map(f64::abs).fold(0.0, f64::max) + (keys as f64).ln(),
        parts: [&output, &product(&minuends, &k, false, false), &product(&minuends, &q, true, false), &of_v]
            .map(|parts| norm(&values(parts))),
    };
    let results = [
        ("output", values(&output)),
        ("gradient of q", values(&product(&slopes, &k, false, false))),
        ("gradient of k", over_group(&of_k)),
        ("gradient of v", over_group(&of_v)),
    ];
    (results, condition)
}

fn distance(actual: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    norm(&actual.iter().zip(expected).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// The fused operator errs at most twice as much as the plain one in the same dtype, or within the table, or as its exponents allow:
/// one that is rounded changes its weight by as much as its last place, so an exponent of 10 in f32 by 10⁻⁶. Where parts cancel, the
/// table is about the parts.
fn check(case: &Case, dtype: DType, device: &Device, rng: &mut impl Rng, context: &str) {
    let operands = case.operands(dtype, rng);
    let (exact, condition) = plain(case, &operands.each_ref().map(|x| x.cast(DType::F64).unwrap()));
    let there = operands.each_ref().map(|x| {
        let moved = x.to_device(device).unwrap();
        // Views lose their strides on the way.
        if case.beside {
            moved.transpose(1, 2).unwrap().contiguous().unwrap().transpose(1, 2).unwrap()
        } else {
            moved
        }
    });
    let (tested, (same, _)) = (fused(case, &there), plain(case, &there));
    // Weights have the accumulators' precision: 16 bits are rounded before and after.
    let unit = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let of_parts = tolerance(dtype).max(2.0 * unit * condition.exponent);
    for (at, ((what, tested), (_, exact))) in tested.iter().zip(&exact).enumerate() {
        let table = of_parts * norm(exact).max(condition.parts[at]);
        let (found, accepted) = (distance(tested, exact), table.max(2.0 * distance(&same[at].1, exact)));
        assert!(found <= accepted, "{what}: {found:e} > {accepted:e}, {case:?}, {context}");
    }
}

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
        causal: false,
        lengths: None,
        mask: None,
        scale: None,
        beside: true,
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
    for_all(1, |device, dtype, _, _| {
        for (batch, heads, queries, keys) in [(0, 2, 3, 3), (2, 0, 3, 3), (2, 2, 0, 3), (2, 2, 3, 0)] {
            let zeros = |heads, tokens| Array::zeros([batch, heads, tokens, 8], dtype, device).unwrap();
            let (q, k) = (zeros(heads, queries), zeros(heads, keys));
            let options = AttentionOptions::default();
            let Attention { output, log_sum_exp } = ops::attention(&q, &k, &k, &options).unwrap();
            assert!(output.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
            let forward = Attention { output: output.clone(), log_sum_exp };
            let gradients = ops::attention_backward([&q, &k, &k], &options, &forward, &output).unwrap();
            assert_eq!((gradients.q.shape(), gradients.k.shape()), (q.shape(), k.shape()));
            assert!(gradients.v.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
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
    sharp_weights_and_rows_that_see_nothing,
    nothing_at_all,
    packed_gradients_are_those_of_the_parts,
    same_inputs_same_bits,
    what_does_not_fit_is_named,
);
