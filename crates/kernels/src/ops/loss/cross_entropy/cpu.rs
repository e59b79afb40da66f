//! Cross-entropy on the host, in double precision.

use super::CrossEntropyOptions;
use crate::{
    Element,
    cpu::{parallel::Flushed, split},
    ops::reduce::cpu::row_max,
};
use rayon::prelude::*;

impl CrossEntropyOptions {
    fn counts(&self, target: u32) -> bool {
        self.ignore != Some(target as usize)
    }
}

/// `out` is the loss of each row, whether it counts, and log Σ eˣ: `[3, rows]`.
pub(super) fn forward<T: Element>(
    x: &[T],
    classes: usize,
    targets: &[u32],
    options: &CrossEntropyOptions,
    out: &mut [f64],
) {
    let rows = targets.len();
    let (losses, rest) = out.split_at_mut(rows);
    let (counted, log_sum_exps) = rest.split_at_mut(rows);
    let smoothing = options.label_smoothing;
    let row = |row: usize| {
        let (source, target) = (&x[row * classes..][..classes], targets[row]);
        let max = row_max(source);
        let shift = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let log_sum_exp = shift + source.iter().map(|x| (x.widen() - shift).exp()).sum::<f64>().ln();
        if !options.counts(target) {
            return (0.0, 0.0, log_sum_exp);
        }
        let mut loss = (1.0 - smoothing) * (log_sum_exp - source[target as usize].widen());
        if smoothing > 0.0 {
            let mean = source.iter().map(|x| x.widen()).sum::<f64>() / classes as f64;
            loss += smoothing * (log_sum_exp - mean);
        }
        (loss, 1.0, log_sum_exp)
    };
    let fill = |first: usize, losses: &mut [f64], counted: &mut [f64], log_sum_exps: &mut [f64]| {
        let outputs = losses.iter_mut().zip(counted).zip(log_sum_exps);
        for (index, ((loss, counted), log_sum_exp)) in outputs.enumerate() {
            (*loss, *counted, *log_sum_exp) = row(first + index);
        }
    };
    let chunk = split::rows_per_chunk(classes);
    losses
        .par_chunks_mut(chunk)
        .zip(counted.par_chunks_mut(chunk))
        .zip(log_sum_exps.par_chunks_mut(chunk))
        .enumerate()
        .flushed_for_each(|(index, ((losses, counted), sums))| fill(index * chunk, losses, counted, sums));
}

/// (softmax − target)·scale in rows that count, 0 in others.
pub(super) fn backward<T: Element>(
    x: &[T],
    classes: usize,
    targets: &[u32],
    options: &CrossEntropyOptions,
    log_sum_exps: &[f64],
    scale: f64,
    out: &mut [T],
) {
    if classes == 0 {
        return;
    }
    let everywhere = options.label_smoothing / classes as f64;
    split::for_chunks(out, split::rows_per_chunk(classes) * classes, |start, out| {
        for (index, out) in out.chunks_exact_mut(classes).enumerate() {
            let row = start / classes + index;
            if !options.counts(targets[row]) {
                out.fill(T::zero());
                continue;
            }
            for (out, x) in out.iter_mut().zip(&x[row * classes..][..classes]) {
                *out = T::narrow(((x.widen() - log_sum_exps[row]).exp() - everywhere) * scale);
            }
            let target = targets[row] as usize;
            let probability = (x[row * classes + target].widen() - log_sum_exps[row]).exp();
            out[target] = T::narrow((probability - everywhere - (1.0 - options.label_smoothing)) * scale);
        }
    });
}
