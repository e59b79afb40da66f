//! Convolutions by the geometric product.

use super::{
    blocks::{clifford_kernel, clifford_kernel_transposed},
    convolution::{ConvolutionOptions, correlate, correlate_transposed},
    prelude::*,
    representation::Representation,
};
use std::sync::Arc;

/// The matrices of the algebra, where weights for all blades are multiplied with fewer products by them.
fn representation(metric: &OrderedMetric, weights: &Tensor) -> Option<Arc<Representation>> {
    let fits = weights.shape().first() == Some(&metric.blade_count()) && weights.shape().rank() > 3;
    Representation::of(metric).filter(|matrices| fits && matrices.pays(weights))
}

/// Refuses a bias that does not have an entry for each blade and output channel, before anything is computed. Weights without that many
/// axes (`outputs` is `None`) are refused where they are read.
fn require_bias(
    operation: &'static str,
    metric: &OrderedMetric,
    bias: Option<&Tensor>,
    outputs: Option<usize>,
) -> Result<()> {
    let (Some(bias), Some(outputs)) = (bias, outputs) else { return Ok(()) };
    let expected = [metric.blade_count(), outputs];
    require_shape(operation, "bias", bias, &expected, "one entry for each blade and channel of the output")
}

/// The Clifford convolution of a field `x` `[I, batch, *space, in]` with weights `[I, out, in/groups, *taps]` and a bias `[I, out]`:
/// y_j = bias_j + Σ_{i,r} (e_i e_r → e_j) x_i ∗ w_r, cross-correlation with the feature as the left factor. Commutes with products by a
/// fixed multivector on the left and, without the padding's ends, with shifts.
///
/// # Errors
/// Shapes, options, dtypes or devices that do not fit together, named.
pub fn clifford_conv(
    metric: &OrderedMetric,
    x: &Tensor,
    weights: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvolutionOptions,
) -> Result<Tensor> {
    const NAME: &str = "clifford_conv";
    space(NAME, x, metric.blade_count(), None)?;
    require_bias(NAME, metric, bias, weights.shape().get(1).copied())?;
    match representation(metric, weights) {
        Some(matrices) => matrices.convolve(x, weights, bias, options, None),
        None => add_bias(NAME, &correlate(x, &clifford_kernel(metric, weights)?, options)?, bias),
    }
}

/// The transposed Clifford convolution of `x` `[I, batch, *space, in]` with weights `[I, in, out/groups, *taps]` and a bias `[I, out]`:
/// `y_j[p·stride + t·dilation − before] += (e_i e_r → e_j) x_i[p] w_r[t]`.
///
/// # Errors
/// As [`clifford_conv`].
pub fn clifford_conv_transpose(
    metric: &OrderedMetric,
    x: &Tensor,
    weights: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvolutionOptions,
    output_padding: &[usize],
) -> Result<Tensor> {
    const NAME: &str = "clifford_conv_transpose";
    space(NAME, x, metric.blade_count(), None)?;
    let outputs = weights.shape().get(2).map(|&of_group| of_group * options.groups);
    require_bias(NAME, metric, bias, outputs)?;
    if let Some(matrices) = representation(metric, weights) {
        return matrices.convolve(x, weights, bias, options, Some(output_padding));
    }
    let kernel = clifford_kernel_transposed(metric, weights)?;
    add_bias(NAME, &correlate_transposed(x, &kernel, options, output_padding)?, bias)
}

/// The Clifford linear map of `x` `[I, …, in]` with weights `[I, out, in]` and a bias `[I, out]`: y_j = bias_j + Σ_{i,r} (e_i e_r → e_j)
/// x_i w_rᵀ, at every position.
///
/// # Errors
/// As [`clifford_conv`].
pub fn clifford_linear(
    metric: &OrderedMetric,
    x: &Tensor,
    weights: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    const NAME: &str = "clifford_linear";
    let blades = metric.blade_count();
    let ([first, lead @ .., channels], &[_, out, _]) = (x.shape().dims(), weights.shape().dims()) else {
        let (x, weights) = (x.shape(), weights.shape());
        return refuse(
            NAME,
            format!(
                "`x` has shape {x}, expected [{blades}, …, in]; `weights` {weights}, expected [{blades}, out, in]"
            ),
        );
    };
    let rows = lead.iter().product();
    let (first, lead, channels) = (*first, lead.to_vec(), *channels);
    let x = x.reshape([first, 1, rows, channels])?;
    let y = clifford_conv(metric, &x, &weights.unsqueeze(3)?, bias, &ConvolutionOptions::new(1))?;
    y.reshape([&[blades], &lead[..], &[out]].concat())
}

/// The number of blades of a field, whatever it is.
fn leading(x: &Tensor) -> usize {
    x.shape().first().copied().unwrap_or(0)
}

/// Means over blocks of `factors` positions of a field `[blades, batch, *space, channels]`.
///
/// # Errors
/// Extents that the factors do not divide.
pub fn pool_mean(x: &Tensor, factors: &[usize]) -> Result<Tensor> {
    const NAME: &str = "pool_mean";
    let extents = space(NAME, x, leading(x), Some(factors.len()))?;
    if extents.iter().zip(factors).any(|(extent, &factor)| factor == 0 || !extent.is_multiple_of(factor)) {
        return refuse(NAME, format!("blocks of {factors:?} positions do not tile {extents:?}"));
    }
    let sizes = x.shape().dims();
    let mut shape = vec![sizes[0], sizes[1]];
    shape.extend(extents.iter().zip(factors).flat_map(|(extent, &factor)| [extent / factor, factor]));
    shape.push(sizes[sizes.len() - 1]);
    let blocks: Vec<usize> = (0..factors.len()).map(|axis| 3 + 2 * axis).collect();
    x.reshape(shape)?.mean(&blocks, false)
}

/// Every position repeated `factors` times along each axis of space.
///
/// # Errors
/// Another number of axes.
pub fn upsample(x: &Tensor, factors: &[usize]) -> Result<Tensor> {
    let extents = space("upsample", x, leading(x), Some(factors.len()))?.to_vec();
    let mut out = x.clone();
    for (axis, (&extent, &factor)) in
        extents.iter().zip(factors).enumerate().filter(|(_, (_, factor))| **factor != 1)
    {
        let entries: Vec<usize> = (0..extent * factor).map(|at| at / factor).collect();
        out = out.index_select(axis + 2, &positions(&entries, extent, x)?)?;
    }
    Ok(out)
}
