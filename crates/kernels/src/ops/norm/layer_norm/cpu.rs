//! Layer normalisation on the host. Sums run in double precision.

use crate::{Element, cpu::split};

pub(super) struct Affine<'a, T> {
    pub weight: Option<&'a [T]>,
    pub bias: Option<&'a [T]>,
}

/// One entry per row.
pub(super) struct Statistics<T> {
    /// Whether the mean is taken off; it is 0 otherwise.
    pub centred: bool,
    pub mean: Vec<T>,
    pub inverse_std: Vec<T>,
}

fn sum<T: Element>(row: &[T], term: impl Fn(usize, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0; LANES];
    let blocks = row.chunks_exact(LANES);
    let tail = row.len() - blocks.remainder().len();
    for (block, values) in blocks.enumerate() {
        for (lane, value) in values.iter().enumerate() {
            lanes[lane] += term(block * LANES + lane, value.widen());
        }
    }
    let rest: f64 =
        row[tail..].iter().enumerate().map(|(index, value)| term(tail + index, value.widen())).sum();
    lanes.iter().sum::<f64>() + rest
}

pub(super) fn statistics<T: Element>(
    x: &[T],
    features: usize,
    rows: usize,
    centred: bool,
    epsilon: f64,
) -> Statistics<T> {
    let count = features as f64;
    let of = |row: &[T]| {
        let mean = if centred { sum(row, |_, value| value) / count } else { 0.0 };
        let variance = sum(row, |_, value| (value - mean) * (value - mean)) / count;
        (mean, (variance + epsilon).sqrt().recip())
    };
    let mut both = vec![(T::zero(), T::zero()); rows];
    split::for_chunks(&mut both, split::rows_per_chunk(features), |start, out| {
        for (index, out) in out.iter_mut().enumerate() {
            let (mean, inverse_std) = of(&x[(start + index) * features..][..features]);
            *out = (T::narrow(mean), T::narrow(inverse_std));
        }
    });
    let (mean, inverse_std) = both.into_iter().unzip();
    Statistics { centred, mean, inverse_std }
}

/// Calls `work(row number, row of out)` for every row.
fn for_rows<T: Element>(out: &mut [T], features: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if features == 0 {
        return;
    }
    split::for_chunks(out, split::rows_per_chunk(features) * features, |start, out| {
        for (index, row) in out.chunks_exact_mut(features).enumerate() {
            work(start / features + index, row);
        }
    });
}

pub(super) fn forward<T: Element>(
    x: &[T],
    features: usize,
    statistics: &Statistics<T>,
    affine: &Affine<'_, T>,
    out: &mut [T],
) {
    for_rows(out, features, |row, out| {
        let (mean, inverse_std) = (statistics.mean[row], statistics.inverse_std[row]);
        for (out, &x) in out.iter_mut().zip(&x[row * features..][..features]) {
            *out = (x - mean) * inverse_std;
        }
        if let Some(weight) = affine.weight {
            for (out, &weight) in out.iter_mut().zip(weight) {
                *out *= weight;
            }
        }
        if let Some(bias) = affine.bias {
            for (out, &bias) in out.iter_mut().zip(bias) {
                *out += bias;
            }
        }
    });
}

pub(super) fn backward<T: Element>(
    x: &[T],
    grad: &[T],
    features: usize,
    statistics: &Statistics<T>,
    affine: &Affine<'_, T>,
    out: &mut [T],
) {
    let count = features as f64;
    for_rows(out, features, |row, out| {
        let (x, grad) = (&x[row * features..][..features], &grad[row * features..][..features]);
        let (mean, inverse_std) = (statistics.mean[row].widen(), statistics.inverse_std[row].widen());
        let weight = |index: usize| affine.weight.map_or(1.0, |weight| weight[index].widen());
        let mean_grad =
            if statistics.centred { sum(grad, |index, grad| grad * weight(index)) / count } else { 0.0 };
        let normalized = |value: T| (value.widen() - mean) * inverse_std;
        let projection = sum(grad, |index, grad| grad * weight(index) * normalized(x[index])) / count;
        for (index, out) in out.iter_mut().enumerate() {
            let grad = grad[index].widen() * weight(index);
            *out = T::narrow(inverse_std * (grad - mean_grad - normalized(x[index]) * projection));
        }
    });
}
