//! Attention on the host, by blocks of queries and keys. Products run in the dtype, the running sums of the softmax in double precision.

use super::{AttentionDropout, AttentionOptions, Problem, dropout::Dropping};
use crate::{
    Array, Element, Result,
    cpu::{
        gemm::{self, Matrix},
        parallel::Flushed,
        simd::Real,
    },
};
use rayon::prelude::*;
use std::ops::Range;

/// Queries and keys of a block.
const BLOCK: usize = Dropping::TILE;

pub(super) struct Task<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    problem: &'a Problem,
    /// The keys that each query sees, of those allowed.
    spans: Vec<Range<usize>>,
    allowed: Option<&'a [bool]>,
    dropout: Option<&'a AttentionDropout>,
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

/// The data in so many equal parts, which may be empty.
fn parts<T>(mut data: &mut [T], count: usize) -> Vec<&mut [T]> {
    let each = data.len().checked_div(count).unwrap_or(0);
    let part = |_| data.split_off_mut(..each);
    (0..count).filter_map(part).collect()
}

/// Block after block of the tokens of a range, from a multiple of [`BLOCK`] on.
fn blocks(tokens: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let Range { start, end } = tokens;
    (start / BLOCK * BLOCK..end).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

impl<'a, T: Element + Real> Task<'a, T> {
    pub fn new(
        [q, k, v]: [&'a Array; 3],
        problem: &'a Problem,
        options: &'a AttentionOptions,
        allowed: Option<&'a [bool]>,
    ) -> Result<Self> {
        let spans = options.spans(problem.queries, problem.keys)?;
        let (q, k, v) = (q.as_slice()?, k.as_slice()?, v.as_slice()?);
        Ok(Self { q, k, v, problem, spans, allowed, dropout: options.dropped() })
    }

    /// The keys that queries of a block, which is not empty, see.
    fn keys_of(&self, block: &Range<usize>) -> Range<usize> {
        self.spans[block.start].start..self.spans[block.end - 1].end
    }

    /// What a head drops of a block: a bit for each key of each query.
    fn dropped(&self, head: usize, queries: &Range<usize>, keys: &Range<usize>) -> Option<[u64; BLOCK]> {
        self.dropout.map(|dropout| Dropping::new(dropout, head).tile(queries.clone(), keys.clone()))
    }

    /// The factor of the weights that are not dropped.
    fn kept(&self) -> f64 {
        self.dropout.map_or(1.0, AttentionDropout::kept)
    }

    fn sees(&self, batch: usize, query: usize, key: usize) -> bool {
        self.spans[query].contains(&key)
            && self.allowed.is_none_or(|allowed| allowed[batch * self.problem.keys + key])
    }

    /// Rows of the tokens of a head.
    fn rows(data: &[T], head: usize, tokens: usize, features: usize) -> &[T] {
        &data[head * tokens * features..][..tokens * features]
    }

    pub fn forward(&self, out: &mut [T], log_sums: &mut [f64]) {
        let Problem { group, queries, keys, features, values, .. } = *self.problem;
        if queries == 0 {
            return;
        }
        let head = |(head, (out, log_sums)): (usize, (&mut [T], &mut [f64]))| {
            let (index, shared) = (head, head / group);
            let operands = Head {
                q: Self::rows(self.q, head, queries, features),
                k: Self::rows(self.k, shared, keys, features),
                v: Self::rows(self.v, shared, keys, values),
            };
            let mut outs = Vec::new();
            let (mut rest, mut rest_sums) = (out, log_sums);
            for block in blocks(0..queries) {
                let (part, after) = rest.split_at_mut(block.len() * values);
                let (part_sums, after_sums) = rest_sums.split_at_mut(block.len());
                outs.push((block, part, part_sums));
                (rest, rest_sums) = (after, after_sums);
            }
            outs.into_par_iter().flushed_for_each(|(block, out, log_sums)| {
                self.forward_block(index, block, operands, out, log_sums);
            });
        };
        if values == 0 {
            // Without features there is no output: only the sums are written.
            let head = |(index, log_sums): (usize, &mut [f64])| head((index, (&mut [][..], log_sums)));
            return log_sums.par_chunks_mut(queries).enumerate().flushed_for_each(head);
        }
        out.par_chunks_mut(queries * values)
            .zip(log_sums.par_chunks_mut(queries))
            .enumerate()
            .flushed_for_each(head);
    }

    fn forward_block(
        &self,
        index: usize,
        block: Range<usize>,
        head: Head<'_, T>,
        out: &mut [T],
        log_sums: &mut [f64],
    ) {
        let Head { q, k, v } = head;
        let Problem { heads, features, values, scale, .. } = *self.problem;
        let batch = index / heads;
        let count = block.len();
        let q = &q[block.start * features..][..count * features];
        let mut products = vec![T::zero(); count * BLOCK];
        let mut greatest = vec![f64::NEG_INFINITY; count];
        let mut totals = vec![0.0f64; count];
        out.fill(T::zero());
        for keys in blocks(self.keys_of(&block)) {
            let width = keys.len();
            let dropped = self.dropped(index, &block, &keys);
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
                let dropped = dropped.map_or(0, |rows| rows[row]);
                for (column, weight) in weights.iter_mut().enumerate() {
                    *weight = (*weight - T::narrow(shift)).exp();
                    sum += weight.widen();
                    if dropped >> column & 1 != 0 {
                        *weight = T::zero();
                    }
                }
                totals[row] = totals[row] * keep + sum;
                greatest[row] = most;
                for out in &mut out[row * values..][..values] {
                    *out *= T::narrow(keep);
                }
            }
            let v = &v[keys.start * values..][..width * values];
            let weights = Matrix::rows(&products[..count * width], width);
            gemm::product(
                gemm::Sizes { m: count, k: width, n: values },
                weights,
                Matrix::rows(v, values),
                out,
                true,
            );
        }
        for (row, log_sum) in log_sums.iter_mut().enumerate() {
            let inverse = if totals[row] == 0.0 { 0.0 } else { 1.0 / totals[row] };
            *log_sum = if totals[row] == 0.0 { f64::NEG_INFINITY } else { greatest[row] + totals[row].ln() };
            for out in &mut out[row * values..][..values] {
                *out *= T::narrow(inverse * self.kept());
            }
        }
    }

    pub fn backward(&self, saved: &Saved<'_, T>, grad_q: &mut [T], grad_k: &mut [T], grad_v: &mut [T]) {
        let Problem { group, queries, keys, values, .. } = *self.problem;
        grad_q.fill(T::zero());
        if values * queries * keys == 0 {
            return;
        }
        let heads = self.v.len() / (keys * values);
        let shared = parts(grad_k, heads).into_iter().zip(parts(grad_v, heads));
        let work: Vec<_> = parts(grad_q, heads).into_iter().zip(shared).enumerate().collect();
        work.into_par_iter().flushed_for_each(|(shared, (grad_q, (grad_k, grad_v)))| {
            for (member, grad_q) in parts(grad_q, group).into_iter().enumerate() {
                self.backward_head(saved, shared, shared * group + member, grad_q, grad_k, grad_v);
            }
        });
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
        let Problem { heads, queries, keys, features, values, scale, .. } = *self.problem;
        let batch = head / heads;
        let q = Self::rows(self.q, head, queries, features);
        let (k, v) = (Self::rows(self.k, shared, keys, features), Self::rows(self.v, shared, keys, values));
        let output = Self::rows(saved.output, head, queries, values);
        let grad = Self::rows(saved.grad, head, queries, values);
        let log_sums = &saved.log_sums[head * queries..][..queries];
        let (mut weights, mut slopes) = (vec![T::zero(); BLOCK * BLOCK], vec![T::zero(); BLOCK * BLOCK]);
        for rows in blocks(0..queries) {
            let count = rows.len();
            let part = |range: &Range<usize>, each: usize| range.start * each..range.end * each;
            let (q, grad, output) =
                (&q[part(&rows, features)], &grad[part(&rows, values)], &output[part(&rows, values)]);
            let grad_q = &mut grad_q[part(&rows, features)];
            let deltas: Vec<f64> = grad
                .chunks_exact(values)
                .zip(output.chunks_exact(values))
                .map(|(grad, output)| grad.iter().zip(output).map(|(a, b)| a.widen() * b.widen()).sum())
                .collect();
            for columns in blocks(self.keys_of(&rows)) {
                let width = columns.len();
                let dropped = self.dropped(head, &rows, &columns);
                let (k, v) = (&k[part(&columns, features)], &v[part(&columns, values)]);
                let grad_k = &mut grad_k[part(&columns, features)];
                let grad_v = &mut grad_v[part(&columns, values)];
                let (weights, slopes) = (&mut weights[..count * width], &mut slopes[..count * width]);
                let (across, of_values) =
                    (|data| Matrix::rows(data, features), |data| Matrix::rows(data, values));
                let sizes = |k| gemm::Sizes { m: count, k, n: width };
                gemm::product(sizes(features), across(q), across(k).transposed(), weights, false);
                gemm::product(sizes(values), of_values(grad), of_values(v).transposed(), slopes, false);
                for row in 0..count {
                    let query = rows.start + row;
                    let dropped = dropped.map_or(0, |rows| rows[row]);
                    for (column, key) in columns.clone().enumerate() {
                        let (weight, slope) =
                            (&mut weights[row * width + column], &mut slopes[row * width + column]);
                        if self.sees(batch, query, key) {
                            let value = (weight.widen() * scale - log_sums[query]).exp();
                            // Selected, not multiplied: a dropped weight of a gradient that is not finite counts nothing.
                            let keep = |value: f64| {
                                if dropped >> column & 1 != 0 { 0.0 } else { value * self.kept() }
                            };
                            *weight = T::narrow(keep(value));
                            *slope = T::narrow(value * (keep(slope.widen()) - deltas[row]) * scale);
                        } else {
                            (*weight, *slope) = (T::zero(), T::zero());
                        }
                    }
                }
                let (weights, slopes) = (Matrix::rows(weights, width), Matrix::rows(slopes, width));
                gemm::product(
                    gemm::Sizes { m: width, k: count, n: values },
                    weights.transposed(),
                    of_values(grad),
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
