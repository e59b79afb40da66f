//! Attention on the host, by blocks of queries and keys. Products run in the dtype, the running sums of the softmax in double precision.

use super::Problem;
use crate::{
    Array, Element, Result,
    gemm::{self, Matrix},
    parallel::Flushed,
    simd::Real,
};
use rayon::prelude::*;

/// Queries and keys of a block.
const BLOCK: usize = 64;

pub(super) struct Task<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    problem: &'a Problem,
    causal: bool,
    allowed: Option<&'a [bool]>,
}

/// Inputs of the backward pass.
pub(super) struct Saved<'a, T> {
    pub output: &'a [T],
    pub grad: &'a [T],
    pub log_sums: &'a [f64],
}

/// Queries, keys and values of one head.
#[derive(Clone, Copy)]
struct Head<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
}

/// Block after block of `count` tokens.
fn blocks(count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..count).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(count))
}

impl<'a, T: Element + Real> Task<'a, T> {
    pub fn new(
        q: &'a Array,
        k: &'a Array,
        v: &'a Array,
        problem: &'a Problem,
        causal: bool,
        allowed: Option<&'a [bool]>,
    ) -> Result<Self> {
        Ok(Self { q: q.as_slice()?, k: k.as_slice()?, v: v.as_slice()?, problem, causal, allowed })
    }

    /// One past the last key that the causal mask, if there is one, lets `query` see.
    fn end(&self, query: usize) -> usize {
        let Problem { queries, keys, .. } = *self.problem;
        if self.causal { (query + 1 + keys).saturating_sub(queries).min(keys) } else { keys }
    }

    fn sees(&self, batch: usize, query: usize, key: usize) -> bool {
        key < self.end(query) && self.allowed.is_none_or(|allowed| allowed[batch * self.problem.keys + key])
    }

    /// Rows of the tokens of a head.
    fn rows(data: &[T], head: usize, tokens: usize, features: usize) -> &[T] {
        &data[head * tokens * features..][..tokens * features]
    }

    pub fn forward(&self, out: &mut [T], log_sums: &mut [f64]) {
        let Problem { heads, group, queries, keys, features, .. } = *self.problem;
        if queries == 0 {
            return;
        }
        let head = |(head, (out, log_sums)): (usize, (&mut [T], &mut [f64]))| {
            let (batch, shared) = (head / heads, head / group);
            let operands = Head {
                q: Self::rows(self.q, head, queries, features),
                k: Self::rows(self.k, shared, keys, features),
                v: Self::rows(self.v, shared, keys, features),
            };
            let mut outs = Vec::new();
            let (mut rest, mut rest_sums) = (out, log_sums);
            for block in blocks(queries) {
                let (part, after) = rest.split_at_mut(block.len() * features);
                let (part_sums, after_sums) = rest_sums.split_at_mut(block.len());
                outs.push((block, part, part_sums));
                (rest, rest_sums) = (after, after_sums);
            }
            outs.into_par_iter().flushed_for_each(|(block, out, log_sums)| {
                self.forward_block(batch, block, operands, out, log_sums);
            });
        };
        if features == 0 {
            // Without features there is no output: only the sums are written.
            let head = |(index, log_sums): (usize, &mut [f64])| head((index, (&mut [][..], log_sums)));
            return log_sums.par_chunks_mut(queries).enumerate().flushed_for_each(head);
        }
        out.par_chunks_mut(queries * features)
            .zip(log_sums.par_chunks_mut(queries))
            .enumerate()
            .flushed_for_each(head);
    }

    fn forward_block(
        &self,
        batch: usize,
        block: std::ops::Range<usize>,
        head: Head<'_, T>,
        out: &mut [T],
        log_sums: &mut [f64],
    ) {
        let Head { q, k, v } = head;
        let Problem { features, scale, .. } = *self.problem;
        let count = block.len();
        let q = &q[block.start * features..][..count * features];
        let mut products = vec![T::zero(); count * BLOCK];
        let mut greatest = vec![f64::NEG_INFINITY; count];
        let mut totals = vec![0.0f64; count];
        out.fill(T::zero());
        for keys in blocks(self.end(block.end - 1)) {
            let width = keys.len();
            let weights = &mut products[..count * width];
            let k = &k[keys.start * features..][..width * features];
            gemm::product(
                gemm::Sizes { m: count, k: features, n: width },
                Matrix::rows(q, features),
                Matrix::rows(k, features).transposed(),
                weights,
                false,
            );
            for (row, weights) in weights.chunks_exact_mut(width).enumerate() {
                let query = block.start + row;
                let mut most = greatest[row];
                for (weight, key) in weights.iter_mut().zip(keys.clone()) {
                    let seen = self.sees(batch, query, key);
                    *weight = if seen { *weight * T::narrow(scale) } else { T::neg_infinity() };
                    let value = weight.widen();
                    most = if value > most || value.is_nan() { value } else { most };
                }
                let shift = if most == f64::NEG_INFINITY { 0.0 } else { most };
                let keep = (greatest[row] - shift).exp();
                let mut sum = 0.0;
                for weight in weights {
                    *weight = (*weight - T::narrow(shift)).exp();
                    sum += weight.widen();
                }
                totals[row] = totals[row] * keep + sum;
                greatest[row] = most;
                for out in &mut out[row * features..][..features] {
                    *out *= T::narrow(keep);
                }
            }
            let v = &v[keys.start * features..][..width * features];
            let weights = Matrix::rows(&products[..count * width], width);
            gemm::product(
                gemm::Sizes { m: count, k: width, n: features },
                weights,
                Matrix::rows(v, features),
                out,
                true,
            );
        }
        for (row, log_sum) in log_sums.iter_mut().enumerate() {
            let inverse = if totals[row] == 0.0 { 0.0 } else { 1.0 / totals[row] };
            *log_sum = if totals[row] == 0.0 { f64::NEG_INFINITY } else { greatest[row] + totals[row].ln() };
            for out in &mut out[row * features..][..features] {
                *out *= T::narrow(inverse);
            }
        }
    }

    pub fn backward(&self, saved: &Saved<'_, T>, grad_q: &mut [T], grad_k: &mut [T], grad_v: &mut [T]) {
        let Problem { group, queries, keys, features, .. } = *self.problem;
        grad_q.fill(T::zero());
        if features * queries * keys == 0 {
            return;
        }
        let shared = grad_k.par_chunks_mut(keys * features).zip(grad_v.par_chunks_mut(keys * features));
        grad_q.par_chunks_mut(group * queries * features).zip(shared).enumerate().flushed_for_each(
            |(shared, (grad_q, (grad_k, grad_v)))| {
                for (member, grad_q) in grad_q.chunks_exact_mut(queries * features).enumerate() {
                    self.backward_head(saved, shared, shared * group + member, grad_q, grad_k, grad_v);
                }
            },
        );
    }

    fn backward_head(
        &self,
        saved: &Saved<'_, T>,
        shared: usize,
        head: usize,
        grad_q: &mut [T],
        grad_k: &mut [T],
        grad_v: &mut [T],
    ) {
        let Problem { heads, queries, keys, features, scale, .. } = *self.problem;
        let batch = head / heads;
        let q = Self::rows(self.q, head, queries, features);
        let (k, v) = (Self::rows(self.k, shared, keys, features), Self::rows(self.v, shared, keys, features));
        let output = Self::rows(saved.output, head, queries, features);
        let grad = Self::rows(saved.grad, head, queries, features);
        let log_sums = &saved.log_sums[head * queries..][..queries];
        let (mut weights, mut slopes) = (vec![T::zero(); BLOCK * BLOCK], vec![T::zero(); BLOCK * BLOCK]);
        for rows in blocks(queries) {
            let count = rows.len();
            let part = |data: &'_ [T], range: &std::ops::Range<usize>| -> std::ops::Range<usize> {
                debug_assert!(range.end * features <= data.len());
                range.start * features..range.end * features
            };
            let (q, grad, output) =
                (&q[part(q, &rows)], &grad[part(grad, &rows)], &output[part(output, &rows)]);
            let grad_q = &mut grad_q[rows.start * features..rows.end * features];
            let deltas: Vec<f64> = grad
                .chunks_exact(features)
                .zip(output.chunks_exact(features))
                .map(|(grad, output)| grad.iter().zip(output).map(|(a, b)| a.widen() * b.widen()).sum())
                .collect();
            for columns in blocks(self.end(rows.end - 1)) {
                let width = columns.len();
                let (k, v) = (&k[part(k, &columns)], &v[part(v, &columns)]);
                let grad_k = &mut grad_k[columns.start * features..columns.end * features];
                let grad_v = &mut grad_v[columns.start * features..columns.end * features];
                let (weights, slopes) = (&mut weights[..count * width], &mut slopes[..count * width]);
                let across = |data| Matrix::rows(data, features);
                let sizes = gemm::Sizes { m: count, k: features, n: width };
                gemm::product(sizes, across(q), across(k).transposed(), weights, false);
                gemm::product(sizes, across(grad), across(v).transposed(), slopes, false);
                for row in 0..count {
                    let query = rows.start + row;
                    for (column, key) in columns.clone().enumerate() {
                        let (weight, slope) =
                            (&mut weights[row * width + column], &mut slopes[row * width + column]);
                        if self.sees(batch, query, key) {
                            let value = (weight.widen() * scale - log_sums[query]).exp();
                            *weight = T::narrow(value);
                            *slope = T::narrow(value * (slope.widen() - deltas[row]) * scale);
                        } else {
                            (*weight, *slope) = (T::zero(), T::zero());
                        }
                    }
                }
                let (weights, slopes) = (Matrix::rows(weights, width), Matrix::rows(slopes, width));
                gemm::product(
                    gemm::Sizes { m: width, k: count, n: features },
                    weights.transposed(),
                    across(grad),
                    grad_v,
                    true,
                );
                gemm::product(
                    gemm::Sizes { m: width, k: count, n: features },
                    slopes.transposed(),
                    across(q),
                    grad_k,
                    true,
                );
                gemm::product(
                    gemm::Sizes { m: count, k: width, n: features },
                    slopes,
                    across(k),
                    grad_q,
                    true,
                );
            }
        }
    }
}
