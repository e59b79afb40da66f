//! Cases of attention, their results by the fused operator and by the definition, and how far both may differ.

#![allow(dead_code, reason = "each test file uses a part")]

use crate::common::tolerance;
use gradewise_kernels::{
    Array, Compute, DType, Device, Index,
    ops::{
        self, AttentionOptions, RandomStream,
        attention::{AttentionDropout, Sequences},
    },
};
use rand::{Rng, RngExt};

/// Sizes of a case and what its queries see.
#[derive(Clone, Debug)]
pub struct Case {
    pub batch: usize,
    pub heads: usize,
    pub shared: usize,
    pub queries: usize,
    pub keys: usize,
    pub features: usize,
    /// Features of the values, if they have others.
    pub values: Option<usize>,
    pub causal: bool,
    pub lengths: Option<Vec<usize>>,
    pub mask: Option<Vec<f64>>,
    pub scale: Option<f64>,
    /// Whether heads lie beside each other in memory, as a linear map gives them.
    pub beside: bool,
    /// Cumulative lengths of packed sequences of queries and keys.
    pub starts: Option<[Vec<usize>; 2]>,
    pub dropout: Option<AttentionDropout>,
}

pub fn one_of<T: Copy>(rng: &mut impl Rng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

impl Case {
    pub fn draw(rng: &mut impl Rng) -> Self {
        let queries = one_of(rng, &[1, 2, 15, 33, 64, 65, 130]);
        let keys = one_of(rng, &[queries, queries, 1, 31, 64, 100, 129]);
        let features = one_of(rng, &[1, 3, 8, 24, 32, 33, 64, 72, 128]);
        let values = rng.random_bool(0.3).then(|| one_of(rng, &[1, 8, 20, 33, 48, 96, 100]));
        Self { values, ..Self::of_sizes([queries, keys, features], rng) }
    }

    pub fn of_sizes([queries, keys, features]: [usize; 3], rng: &mut impl Rng) -> Self {
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
            values: None,
            causal: rng.random_bool(0.5),
            lengths,
            mask,
            scale: rng.random_bool(0.3).then_some(0.3),
            beside: rng.random_bool(0.5),
            starts: None,
            dropout: None,
        }
    }

    /// With packed sequences, dropout, or both.
    pub fn generalized(self, rng: &mut impl Rng) -> Self {
        let which = rng.random_range(0..3);
        let count = rng.random_range(0..6);
        let mut starts = |tokens: usize| {
            let mut starts: Vec<usize> = (0..count).map(|_| rng.random_range(0..=tokens)).collect();
            starts.extend([0, tokens]);
            starts.sort_unstable();
            starts
        };
        let starts = (which != 0).then(|| [starts(self.queries), starts(self.keys)]);
        let random = RandomStream { seed: rng.random(), stream: rng.random() };
        let dropout = (which != 1).then(|| AttentionDropout { p: one_of(rng, &[0.1, 0.5, 0.8]), random });
        Self { starts, dropout, ..self }
    }

    pub fn options(&self, dtype: DType, device: &Device) -> AttentionOptions {
        let mask =
            |values: &Vec<f64>| Array::from_f64(values, [self.batch, self.keys], dtype, device).unwrap();
        AttentionOptions {
            causal: self.causal,
            scale: self.scale,
            lengths: self.lengths.as_ref().map(|lengths| Index::new(lengths, self.keys + 1, device).unwrap()),
            mask: self.mask.as_ref().map(mask),
            sequences: self
                .starts
                .as_ref()
                .map(|[queries, keys]| Sequences::new(queries, keys, device).unwrap()),
            dropout: self.dropout,
        }
    }

    pub fn sees(&self, batch: usize, query: usize, key: usize) -> bool {
        self.lengths.as_ref().is_none_or(|lengths| key < lengths[batch])
            && self.mask.as_ref().is_none_or(|mask| mask[batch * self.keys + key] != 0.0)
            && self.sees_in_sequence(query, key)
    }

    /// Whether some sequence has both, and the causal mask, if there is one, lets its last query see its last key.
    fn sees_in_sequence(&self, query: usize, key: usize) -> bool {
        let one = [vec![0, self.queries], vec![0, self.keys]];
        let [queries, keys] = self.starts.as_ref().unwrap_or(&one);
        (1..queries.len()).any(|at| {
            (queries[at - 1]..queries[at]).contains(&query)
                && (keys[at - 1]..keys[at]).contains(&key)
                && (!self.causal || queries[at] - query <= keys[at] - key)
        })
    }

    /// Queries, keys, values and a gradient, rounded to the dtype.
    pub fn operands(&self, dtype: DType, rng: &mut impl Rng) -> [Array; 4] {
        let values = self.values.unwrap_or(self.features);
        let mut draw = |heads, tokens, features| {
            let order = if self.beside { [0, tokens, heads] } else { [0, heads, tokens] };
            let shape = [self.batch, order[1], order[2], features];
            let array = Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap().cast(dtype).unwrap();
            if self.beside { array.transpose(1, 2).unwrap() } else { array }
        };
        let (q, k) =
            (draw(self.heads, self.queries, self.features), draw(self.shared, self.keys, self.features));
        [q, k, draw(self.shared, self.keys, values), draw(self.heads, self.queries, values)]
    }
}

pub type Results = [(&'static str, Vec<f64>); 4];

pub fn fused(case: &Case, operands: &[Array; 4]) -> Results {
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
pub struct Condition {
    /// The greatest exponent, by absolute value, of the weights.
    exponent: f64,
    /// Norms of what the results are sums or differences of, for they may cancel: with a single key, to 0.
    parts: [f64; 4],
}

pub fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The definition, an operator at a time, each result rounded to the dtype of the operands.
pub fn plain(case: &Case, [q, k, v, grad]: &[Array; 4]) -> (Results, Condition) {
    let Case { batch, heads, shared, queries, keys, features, .. } = *case;
    let (dtype, device) = (q.dtype(), q.device());
    let group = heads / shared;
    let scale = case.scale.unwrap_or((features as f64).sqrt().recip());
    let grouped = |x: &Array, features: usize| {
        x.contiguous().unwrap().reshape([batch, shared, group, queries, features]).unwrap()
    };
    let (q, grad) = (grouped(q, features), grouped(grad, case.values.unwrap_or(features)));
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
    let dropped = |x: &Array| match &case.dropout {
        Some(dropout) => {
            let mask = dropout.mask([batch, heads, queries, keys], dtype, &device).unwrap();
            ops::mul(x, &mask.reshape([batch, shared, group, queries, keys]).unwrap()).unwrap()
        }
        None => x.clone(),
    };
    let kept = dropped(&weights);
    let output = product(&kept, &v, false, false);
    let grad_weights = ops::mul(&product(&grad, &v, false, true), &kept).unwrap();
    let total = ops::sum(&grad_weights, &[4], true).unwrap();
    let slopes = ops::sub(&grad_weights, &ops::mul(&weights, &total).unwrap()).unwrap();
    let scaled = |x: &Array| ops::mul_scalar(x, scale).unwrap();
    let (slopes, minuends) = (scaled(&slopes), scaled(&grad_weights));
    // The fused operator has the total from the output, Σ output·gradient over the features, and the output was rounded. Where these terms
    // cancel, so that the total and the minuends are small, the error is still that of the terms: of the root of their squares' sum, for
    // each is rounded by itself. It reaches the slopes times the weights.
    let terms = ops::mul(&output, &grad).unwrap();
    let spread = ops::sqrt(&ops::sum(&ops::mul(&terms, &terms).unwrap(), &[4], true).unwrap()).unwrap();
    let subtrahends = scaled(&ops::mul(&weights, &spread).unwrap());
    let values = |x: &Array| x.to_f64_vec().unwrap();
    let over_group = |x: &Array| values(&ops::sum(x, &[2], false).unwrap());
    let (of_k, of_v) = (product(&slopes, &q, true, false), product(&kept, &grad, true, false));
    let greater = |other: &Array, transpose| {
        [&minuends, &subtrahends]
            .map(|part| norm(&values(&product(part, other, transpose, false))))
            .into_iter()
            .fold(0.0, f64::max)
    };
    let condition = Condition {
        exponent: values(&scores).into_iter().map(f64::abs).fold(0.0, f64::max) + (keys as f64).ln(),
        parts: [norm(&values(&output)), greater(&k, false), greater(&q, true), norm(&values(&of_v))],
    };
    let results = [
        ("output", values(&output)),
        ("gradient of q", values(&product(&slopes, &k, false, false))),
        ("gradient of k", over_group(&of_k)),
        ("gradient of v", over_group(&of_v)),
    ];
    (results, condition)
}

pub fn distance(actual: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    norm(&actual.iter().zip(expected).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// The fused operator errs at most twice as much as the plain one in the same dtype, or within the table, or as its exponents allow:
/// one that is rounded changes its weight by as much as its last place, so an exponent of 10 in f32 by 10⁻⁶. Where parts cancel, the
/// table is about the parts.
pub fn check(case: &Case, dtype: DType, device: &Device, rng: &mut impl Rng, context: &str) {
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
    // Operands in TF32 have 10 bits of mantissa.
    let in_tf32 = dtype == DType::F32 && Compute::current() == Compute::Tf32 && *device != Device::Cpu;
    let unit = match dtype {
        DType::F64 => f64::EPSILON,
        _ if in_tf32 => 1.0 / 1024.0,
        _ => f64::from(f32::EPSILON),
    };
    let table = if in_tf32 { 1e-3 } else { tolerance(dtype) };
    let of_parts = table.max(2.0 * unit * condition.exponent);
    for (at, ((what, tested), (_, exact))) in tested.iter().zip(&exact).enumerate() {
        let table = of_parts * norm(exact).max(condition.parts[at]);
        let (found, accepted) = (distance(tested, exact), table.max(2.0 * distance(&same[at].1, exact)));
        assert!(found <= accepted, "{what}: {found:e} > {accepted:e}, {case:?}, {context}");
    }
}
