//! Kernels between blades, from one kernel for each blade: y_j = Σ_i x_i·(e_i e_r → e_j)·w_r.

use super::prelude::*;

/// The kernel `[I, out, I, *taps, in]` of the geometric product x·w, feature on the left, from weights `[I, out, in, *taps]`: the kernel of
/// the pair (j, i) is that of the one blade r with e_i·e_r = ±e_j, with that sign, or 0 if a null generator would square.
///
/// # Errors
/// Weights of another shape.
pub fn clifford_kernel(metric: &OrderedMetric, weights: &Tensor) -> Result<Tensor> {
    let all: Vec<usize> = (0..metric.blade_count()).collect();
    clifford_kernel_between(metric, weights, &all, &all)
}

/// [`clifford_kernel`] for fields that have only some blades: `[outputs, out, inputs, *taps, in]`. Encoders and decoders of models whose
/// data lack blades are such.
///
/// # Errors
/// Weights of another shape, blades that the algebra does not have.
pub fn clifford_kernel_between(
    metric: &OrderedMetric,
    weights: &Tensor,
    inputs: &[usize],
    outputs: &[usize],
) -> Result<Tensor> {
    const NAME: &str = "clifford_kernel";
    let (blades, count) = (metric.blade_count(), inputs.len());
    if let Some(blade) = inputs.iter().chain(outputs).find(|&&blade| blade >= blades) {
        return refuse(NAME, format!("there is no blade {blade} in the metric {metric}, which has {blades}"));
    }
    let pairs = outputs.iter().flat_map(|&j| inputs.iter().map(move |&i| (i, j)));
    let (chosen, signs) = chosen(metric, pairs);
    let (taps, [out, channels]) = weight_shape(NAME, metric, weights)?;
    let selected = select(weights, &chosen, &signs)?;
    // [J·I, out, in, taps] → [J, out, I, taps, in].
    let volume = taps.iter().product();
    let kernel =
        selected.reshape([outputs.len(), count, out, channels, volume])?.permute(&[0, 2, 1, 4, 3])?;
    kernel.reshape([&[outputs.len(), out, count], &taps[..], &[channels]].concat())
}

/// The kernel with which [`correlate_transposed`](super::correlate_transposed) scatters the geometric product x·w: `[I, in, I, *taps, out]`
/// from weights `[I, in, out, *taps]`.
///
/// # Errors
/// Weights of another shape.
pub fn clifford_kernel_transposed(metric: &OrderedMetric, weights: &Tensor) -> Result<Tensor> {
    const NAME: &str = "clifford_kernel_transposed";
    let blades = metric.blade_count();
    let pairs = (0..blades).flat_map(|i| (0..blades).map(move |j| (i, j)));
    let (chosen, signs) = chosen(metric, pairs);
    let (taps, [channels, out]) = weight_shape(NAME, metric, weights)?;
    let volume = taps.iter().product();
    let selected = select(weights, &chosen, &signs)?;
    // [I·J, in, out, taps] → [I, in, J, taps, out].
    let kernel = selected.reshape([blades, blades, channels, out, volume])?.permute(&[0, 2, 1, 4, 3])?;
    kernel.reshape([&[blades, channels, blades], &taps[..], &[out]].concat())
}

/// The weight of each pair of blades (in, out), and its sign.
fn chosen(metric: &OrderedMetric, pairs: impl Iterator<Item = (usize, usize)>) -> (Vec<usize>, Vec<f64>) {
    pairs
        .map(|(i, j)| {
            let r = metric.factor(i, j);
            (r, f64::from(metric.product(i, r).1))
        })
        .unzip()
}

/// Entries of the leading axis, each with its sign.
fn select(weights: &Tensor, chosen: &[usize], signs: &[f64]) -> Result<Tensor> {
    let mut shape = vec![1; weights.shape().rank()];
    shape[0] = signs.len();
    let index = positions(chosen, weights.shape()[0], weights)?;
    weights.index_select(0, &index)?.mul(&constant(signs, &shape, weights)?)
}

/// The taps and the two sizes of channels of weights `[blades, first, second, *taps]`.
fn weight_shape(
    operation: &'static str,
    metric: &OrderedMetric,
    weights: &Tensor,
) -> Result<(Vec<usize>, [usize; 2])> {
    match weights.shape().dims() {
        [blades, first, second, taps @ ..] if *blades == metric.blade_count() && !taps.is_empty() => {
            Ok((taps.to_vec(), [*first, *second]))
        }
        _ => refuse(
            operation,
            format!(
                "`weights` has shape {}, expected [{}, channels, channels, *taps]: one kernel for each blade of the metric {metric}",
                weights.shape(),
                metric.blade_count()
            ),
        ),
    }
}

/// A kernel `[J, out, I, *taps, in]` from its blocks `[out, in, *taps]`, row by row of the matrix from blades I to blades J.
pub(super) fn of_blocks(blocks: &[&Tensor], outputs: usize, inputs: usize) -> Result<Tensor> {
    let stacked = crate::stack(blocks, 0)?;
    let shape = stacked.shape().to_vec();
    let (out, channels, taps) = (shape[1], shape[2], &shape[3..]);
    let kernel = stacked
        .reshape([outputs, inputs, out, channels, taps.iter().product()])?
        .permute(&[0, 2, 1, 4, 3])?;
    kernel.reshape([&[outputs, out, inputs], taps, &[channels]].concat())
}
