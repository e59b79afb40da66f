//! Steerable convolutions whose kernel depends on the field (Szarvas and Zhdanov 2025, arXiv:2510.14007). Products of a multivector that
//! depends on the position alone with the features leave out part of what steerable kernels can be; a second multivector, which turns with
//! the field, completes them.

use super::{
    SteerableKernel, SteerablePadding,
    convolution::correlate,
    prelude::*,
    steerable::{biased, evaluated, options, taps},
};
use crate::without_autocast;

const NAME: &str = "cs_conv_conditioned";

/// The mean over space of a field `[I, batch, *space, channels]`: `[I, batch, channels]`, the condition of the publication. It does not
/// change when the field moves, and turns when the field turns.
///
/// # Errors
/// A field of another number of blades or axes.
pub fn cs_condition(metric: &OrderedMetric, x: &Tensor) -> Result<Tensor> {
    let axes = metric.dimension();
    space(NAME, x, metric.blade_count(), Some(axes))?;
    x.mean(&(2..2 + axes).collect::<Vec<_>>(), false)
}

/// The kernels `[I, batch, out, I, *taps, in]` for conditions `[I, batch, channels]`: those of [`cs_kernel`](super::cs_kernel), whose
/// network has the position as its first channel and the condition as the others, so that its first layer has 1 + `channels` inputs.
///
/// # Errors
/// As [`cs_kernel`](super::cs_kernel); conditions of other blades.
pub fn cs_kernel_conditioned(
    metric: &OrderedMetric,
    kernel: &SteerableKernel,
    condition: &Tensor,
) -> Result<Tensor> {
    let (points, squares) = taps(metric, kernel.size)?;
    let all = without_autocast(|| evaluated(metric, kernel, &points, &squares, Some(condition)))?;
    let (blades, axes, batch) = (metric.blade_count(), metric.dimension(), condition.shape()[1]);
    let taps = vec![kernel.size; axes];
    let parted =
        all.reshape([&[blades, kernel.outputs, blades, batch], &taps[..], &[kernel.inputs]].concat())?;
    let order: Vec<usize> = [0, 3, 1, 2].into_iter().chain(4..5 + axes).collect();
    parted.permute(&order)
}

/// The steerable convolution of a field `x` `[I, batch, *space, in]` with a kernel of its own for each sample, from conditions `[I, batch,
/// channels]` such as [`cs_condition`]'s, and a bias `[out, bias blades]`. Commutes with the same maps as [`cs_conv`](super::cs_conv), if
/// the conditions turn with the field. It is not linear in the field.
///
/// # Errors
/// As [`cs_conv`](super::cs_conv) and [`cs_kernel_conditioned`]; conditions of another number of samples.
pub fn cs_conv_conditioned(
    metric: &OrderedMetric,
    x: &Tensor,
    kernel: &SteerableKernel,
    condition: &Tensor,
    bias: Option<&Tensor>,
    stride: usize,
    padding: SteerablePadding,
) -> Result<Tensor> {
    let (blades, axes) = (metric.blade_count(), metric.dimension());
    let extents = space(NAME, x, blades, Some(axes))?.to_vec();
    let (batch, inputs) = (x.shape()[1], kernel.inputs);
    if condition.shape().get(1) != Some(&batch) {
        return refuse(
            NAME,
            format!("`condition` has shape {}, expected [{blades}, {batch}, channels]", condition.shape()),
        );
    }
    let kernels = cs_kernel_conditioned(metric, kernel, condition)?;
    let bias = bias.map(|bias| (bias, &kernel.bias_blades[..]));
    // One sample whose groups of channels are the samples: [I, batch, *space, in] to [I, 1, *space, batch·in].
    let to_channels: Vec<usize> = [0].into_iter().chain(2..2 + axes).chain([1, 2 + axes]).collect();
    require_shape(
        NAME,
        "x",
        x,
        &[&[blades, batch], &extents[..], &[inputs]].concat(),
        "the kernel's inputs",
    )?;
    let groups =
        x.permute(&to_channels)?.reshape([&[blades, 1], &extents[..], &[batch * inputs]].concat())?;
    let stacked =
        [&[blades, batch * kernel.outputs, blades], &vec![kernel.size; axes][..], &[inputs]].concat();
    let mut options = options(&extents, kernel.size, stride, padding);
    options.groups = batch.max(1);
    let y = correlate(&groups, &kernels.reshape(stacked)?, &options)?;
    let made = y.shape()[2..2 + axes].to_vec();
    let parted = y.reshape([&[blades], &made[..], &[batch, kernel.outputs]].concat())?;
    let to_samples: Vec<usize> = [0, 1 + axes].into_iter().chain(1..1 + axes).chain([2 + axes]).collect();
    biased(metric, parted.permute(&to_samples)?, bias)
}
