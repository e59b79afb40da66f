//! Batch and group normalisation of fields: the blades of a channel are whitened together.

use super::{
    cholesky::inverse_cholesky,
    convolution::{Convolution, FORWARD, KERNEL},
    prelude::*,
};
use crate::without_autocast;
use gradewise_kernels::ops::fields::convolution::{Axis, Geometry};

/// Which triangular system whitens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whitening {
    /// L·x̂ = x − μ with L·Lᵀ the covariance: that of x̂ is the identity.
    #[default]
    Lower,
    /// Lᵀ·x̂ = x − μ, as published: trained weights expect it, but the covariance of x̂ is not the identity.
    Reference,
}

/// How a normalisation whitens.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct NormOptions {
    /// Added to the diagonal of the covariance, in units of its largest entry.
    pub epsilon: f64,
    /// Which triangular system whitens.
    pub whitening: Whitening,
}

impl Default for NormOptions {
    fn default() -> Self {
        Self { epsilon: 1e-5, whitening: Whitening::Lower }
    }
}

/// Mean `[I, C]` and covariance `[I, I, C]` of the blades of each channel.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The mean.
    pub mean: Tensor,
    /// The covariance.
    pub covariance: Tensor,
}

/// The affine map after whitening: y_i = Σ_j weight[i, j, c]·x̂_j + bias[i, c].
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchNorm<'a> {
    /// `[I, I, C]`.
    pub weight: Option<&'a Tensor>,
    /// `[I, C]`.
    pub bias: Option<&'a Tensor>,
}

/// Normalises each channel of a field `x` `[I, batch, *space, C]` over batch and space, by its own statistics or by given ones, which are
/// returned: running averages are the caller's. 16-bit fields are normalised in `f32`, in mixed precision, too.
///
/// # Errors
/// Shapes that do not fit together; no samples.
pub fn clifford_batch_norm(
    x: &Tensor,
    parameters: BatchNorm<'_>,
    given: Option<&Statistics>,
    options: NormOptions,
) -> Result<(Tensor, Statistics)> {
    const NAME: &str = "clifford_batch_norm";
    let ([blades, .., channels], elements) = (x.shape().dims(), x.shape().elements()) else {
        return refuse(
            NAME,
            format!("`x` has shape {}, expected [blades, batch, *space, channels]", x.shape()),
        );
    };
    let (blades, channels) = (*blades, *channels);
    let rows = elements.checked_div(blades * channels).unwrap_or(0);
    let wide = x.cast(x.dtype().accumulator())?.reshape([blades, 1, rows, channels])?;
    let (y, statistics) = without_autocast(|| normalize(NAME, &wide, parameters, given, options))?;
    Ok((y.reshape(x.shape())?.cast(x.dtype())?, statistics))
}

/// Normalises groups of `channels_per_group` adjacent channels of a field `x` `[I, batch, *space, C]`, each sample for itself, over the
/// channels of the group and space. The parameters have one entry for each of the C/channels_per_group groups: `weight` `[I, I, groups]`,
/// `bias` `[I, groups]`.
///
/// # Errors
/// As [`clifford_batch_norm`]; channels that do not form such groups.
pub fn clifford_group_norm(
    x: &Tensor,
    parameters: BatchNorm<'_>,
    channels_per_group: usize,
    options: NormOptions,
) -> Result<Tensor> {
    const NAME: &str = "clifford_group_norm";
    let &[blades, batch, .., channels] = x.shape().dims() else {
        return refuse(
            NAME,
            format!("`x` has shape {}, expected [blades, batch, *space, channels]", x.shape()),
        );
    };
    if channels_per_group == 0 || !channels.is_multiple_of(channels_per_group) {
        return refuse(NAME, format!("{channels} channels do not form groups of {channels_per_group}"));
    }
    let groups = channels / channels_per_group;
    let positions = x.shape().elements().checked_div(blades * batch * channels).unwrap_or(0);
    // Every (sample, group) is a channel of its own, with space and the channels of the group as samples.
    let split = [blades, batch, positions, groups, channels_per_group];
    let rows = x.cast(x.dtype().accumulator())?.reshape(split)?.permute(&[0, 2, 4, 1, 3])?;
    let rows = rows.reshape([blades, 1, positions * channels_per_group, batch * groups])?;
    let repeated = |parameter: Option<&Tensor>| -> Result<Option<Tensor>> {
        let Some(parameter) = parameter else { return Ok(None) };
        let mut shape = parameter.shape().to_vec();
        let Some(last) = shape.pop() else { return Ok(Some(parameter.clone())) };
        if last != groups {
            return refuse(
                NAME,
                format!("a parameter has shape {}, expected {groups} groups last", parameter.shape()),
            );
        }
        let wide = [&shape[..], &[batch, groups]].concat();
        let rank = shape.len();
        let parameter = parameter.unsqueeze(rank)?.broadcast_to(&wide.into())?;
        Ok(Some(parameter.reshape([&shape[..], &[batch * groups]].concat())?))
    };
    let (weight, bias) = (repeated(parameters.weight)?, repeated(parameters.bias)?);
    let parameters = BatchNorm { weight: weight.as_ref(), bias: bias.as_ref() };
    let (y, _) = without_autocast(|| normalize(NAME, &rows, parameters, None, options))?;
    let y = y.reshape([blades, positions, channels_per_group, batch, groups])?.permute(&[0, 3, 1, 4, 2])?;
    y.reshape(x.shape())?.cast(x.dtype())
}

/// Whitens the channels of `x` `[I, 1, rows, C]`, and maps the result by the parameters.
fn normalize(
    operation: &'static str,
    x: &Tensor,
    parameters: BatchNorm<'_>,
    given: Option<&Statistics>,
    options: NormOptions,
) -> Result<(Tensor, Statistics)> {
    let &[blades, _, rows, channels] = x.shape().dims() else {
        return refuse(operation, format!("`x` has shape {}", x.shape()));
    };
    if blades * rows * channels == 0 {
        return refuse(operation, "there are no samples to normalise");
    }
    let form = Form { rows, channels };
    let statistics = match given {
        Some(given) => {
            let reason = "statistics of each channel";
            require_shape(operation, "mean", &given.mean, &[blades, channels], reason)?;
            require_shape(operation, "covariance", &given.covariance, &[blades, blades, channels], reason)?;
            let like = |tensor: &Tensor| tensor.cast(x.dtype());
            Statistics { mean: like(&given.mean)?, covariance: like(&given.covariance)? }
        }
        None => {
            let mean = x.mean(&[1, 2], true)?;
            let centred = x.sub(&mean)?;
            let covariance = form.products(&centred, &centred)?.mul_scalar(1.0 / rows as f64)?;
            Statistics { mean: mean.reshape([blades, channels])?, covariance }
        }
    };
    let centred = x.sub(&statistics.mean.reshape([blades, 1, 1, channels])?)?;
    let by_channel = statistics.covariance.permute(&[2, 0, 1])?;
    let identity: Vec<f64> = (0..blades * blades)
        .map(|at| if at.is_multiple_of(blades + 1) { options.epsilon } else { 0.0 })
        .collect();
    let largest =
        by_channel.reshape([channels, blades * blades])?.max(&[1], true)?.reshape([channels, 1, 1])?;
    let ridge = largest.mul(&constant(&identity, &[1, blades, blades], x)?)?;
    let inverse = inverse_cholesky(&by_channel.add(&ridge)?)?;
    let whitening = match options.whitening {
        Whitening::Lower => inverse,
        Whitening::Reference => inverse.transpose(1, 2)?,
    };
    let map = match parameters.weight {
        None => whitening,
        Some(weight) => {
            require_shape(
                operation,
                "weight",
                weight,
                &[blades, blades, channels],
                "a matrix for each channel",
            )?;
            weight.cast(x.dtype())?.permute(&[2, 0, 1])?.matmul(&whitening)?
        }
    };
    let y = form.mapped(&centred, &map)?;
    let bias = parameters.bias.map(|bias| bias.cast(x.dtype())).transpose()?;
    Ok((add_bias(operation, &y, bias.as_ref())?, statistics))
}

/// Matrices that act on the blades of each channel: a convolution of one tap, with as many groups as channels.
struct Form {
    rows: usize,
    channels: usize,
}

impl Form {
    fn geometry(&self) -> Result<Geometry> {
        Ok(Geometry::new(&[Axis::convolution(self.rows, 1, 1, 1, [0, 0])], self.channels)?)
    }

    /// y_i = Σ_j map[c, i, j]·x_j, for `x` `[J, 1, rows, C]`.
    fn mapped(&self, x: &Tensor, map: &Tensor) -> Result<Tensor> {
        let kernel = map.permute(&[1, 0, 2])?.unsqueeze(3)?.unsqueeze(4)?;
        Tensor::apply(Convolution::<FORWARD>::of(&self.geometry()?), &[x, &kernel])
    }

    /// Σ over rows of y_i·x_j, `[I, J, C]`.
    fn products(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let (i, j) = (y.shape()[0], x.shape()[0]);
        let sums = Tensor::apply(Convolution::<KERNEL>::of(&self.geometry()?), &[x, y])?;
        sums.reshape([i, self.channels, j])?.permute(&[0, 2, 1])
    }
}

/// Normalises vectors on a plane, `x` `[blades, batch, *space, C]`, in `groups` groups of adjacent channels: the mean over space and the
/// channels of a group is subtracted from each component; with `scale`, what is left is divided by the mean of its lengths plus that
/// number; then `weight` `[C]` multiplies and `bias` `[C, blades]` is added. Commutes with rotations of the components if there is no bias.
///
/// # Errors
/// Shapes that do not fit together, channels that do not form the groups.
pub fn g3_group_norm(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    groups: usize,
    scale: Option<f64>,
) -> Result<Tensor> {
    const NAME: &str = "g3_group_norm";
    let &[blades, batch, .., channels] = x.shape().dims() else {
        return refuse(
            NAME,
            format!("`x` has shape {}, expected [blades, batch, *space, channels]", x.shape()),
        );
    };
    if groups == 0 || !channels.is_multiple_of(groups) {
        return refuse(NAME, format!("{channels} channels do not form {groups} groups"));
    }
    require_shape(NAME, "weight", weight, &[channels], "one entry for each channel")?;
    require_shape(NAME, "bias", bias, &[channels, blades], "one entry for each channel and blade")?;
    let positions = x.shape().elements().checked_div(blades * batch * channels).unwrap_or(0);
    let split = x.reshape([blades, batch, positions, groups, channels / groups.max(1)])?;
    let centred = split.sub(&split.mean(&[2, 4], true)?)?;
    let scaled = match scale {
        None => centred,
        Some(epsilon) => {
            let length = centred.square()?.sum(&[0], true)?.sqrt()?;
            centred.div(&length.mean(&[2, 4], true)?.add_scalar(epsilon)?)?
        }
    };
    let y = scaled.reshape(x.shape())?.mul(weight)?;
    add_bias(NAME, &y, Some(&bias.transpose(0, 1)?))
}
