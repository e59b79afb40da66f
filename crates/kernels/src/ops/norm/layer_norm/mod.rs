//! Layer normalisation (Ba et al. 2016, arXiv:1607.06450), and without its mean: RMS normalisation.

mod cpu;
mod cuda;

use crate::{Array, Device, Error, Result, array::require_axis, cpu::element::with_element, ops};

/// The ε of the published layers, added to the variance.
pub const EPSILON: f64 = 1e-5;

/// A normalised array and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// (x − mean)·inverse_std·weight + bias, of the shape of x.
    pub output: Array,
    /// The mean of each row: the shape of x without its last axis, in the dtype of x or, where that has 16 bits, in f32.
    pub mean: Array,
    /// 1/√(variance + ε) of each row, likewise.
    pub inverse_std: Array,
}

/// An array normalised by [`rms_norm`] and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// x·inverse_rms·weight, of the shape of x.
    pub output: Array,
    /// 1/√(mean square + ε) of each row, as [`LayerNorm::inverse_std`].
    pub inverse_rms: Array,
}

/// Gradients of a normalisation; those of absent arguments are `None`.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of x.
    pub x: Array,
    /// Of the weight.
    pub weight: Option<Array>,
    /// Of the bias.
    pub bias: Option<Array>,
}

const NAME: &str = "layer_norm";

fn check_parameter(
    argument: &'static str,
    parameter: Option<&Array>,
    x: &Array,
    features: usize,
) -> Result<()> {
    let Some(parameter) = parameter else { return Ok(()) };
    parameter.require_like(x, NAME, argument)?;
    parameter.require_shape(NAME, argument, &[features], || {
        "one entry for each element of the last axis".to_owned()
    })
}

/// Refuses statistics of another dtype or device than those of the forward pass.
fn require_statistic(statistic: &Array, x: &Array, argument: &'static str) -> Result<()> {
    let (actual, expected) = (statistic.dtype(), x.dtype().accumulator());
    if actual != expected {
        return Err(gradewise_core::Error::DType { operation: NAME, argument, actual, expected }.into());
    }
    x.require_beside(&statistic.device(), NAME, argument)
}

fn features(x: &Array) -> Result<usize> {
    require_axis(NAME, 0, x.shape())?;
    Ok(x.dims()[x.rank() - 1])
}

/// The result of either norm; rows that are not centred have no mean.
struct Normalized {
    output: Array,
    mean: Option<Array>,
    inverse_std: Array,
}

fn normalize(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    centred: bool,
    epsilon: f64,
) -> Result<Normalized> {
    if !(epsilon >= 0.0 && epsilon.is_finite()) {
        let (actual, expected) = (epsilon.to_string(), "at least 0, finite");
        return Err(Error::Argument { operation: NAME, argument: "epsilon", actual, expected });
    }
    let features = features(x)?;
    check_parameter("weight", weight, x, features)?;
    check_parameter("bias", bias, x, features)?;
    let x = x.contiguous()?;
    let [weight, bias] =
        [weight.map(Array::contiguous).transpose()?, bias.map(Array::contiguous).transpose()?];
    let rows = x.dims()[..x.rank() - 1].to_vec();
    let device = x.device();
    if let Device::Cuda(device) = &device {
        return cuda::forward(device, &x, weight.as_ref(), bias.as_ref(), centred, epsilon);
    }
    with_element!(x.dtype(), NAME, T => {
        let x_slice = x.as_slice::<T>()?;
        let affine = cpu::Affine {
            weight: weight.as_ref().map(Array::as_slice).transpose()?,
            bias: bias.as_ref().map(Array::as_slice).transpose()?,
        };
        let statistics = cpu::statistics(x_slice, features, rows.iter().product(), centred, epsilon);
        let mean = centred.then(|| Array::from_slice(&statistics.mean, rows.clone(), &device)).transpose()?;
        let inverse_std = Array::from_slice(&statistics.inverse_std, rows, &device)?;
        let output = Array::build(x.shape(), &device, |out: &mut [T]| {
            cpu::forward(x_slice, features, &statistics, &affine, out);
        })?;
        Ok(Normalized { output, mean, inverse_std })
    })
}

/// Normalises along the last axis to mean 0 and variance 1 (of the population, two passes), then scales by `weight`
/// and adds `bias`, both `[features]`. ε is added to the variance; usually [`EPSILON`].
///
/// # Errors
/// If `x` has rank 0, or shapes, dtypes or devices do not fit together; an ε below 0 or not finite.
pub fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    epsilon: f64,
) -> Result<LayerNorm> {
    match normalize(x, weight, bias, true, epsilon)? {
        Normalized { output, mean: Some(mean), inverse_std } => Ok(LayerNorm { output, mean, inverse_std }),
        _ => unreachable!("centred rows have a mean"),
    }
}

/// x / √(mean of x² + ε) along the last axis, times `weight` `[features]` (Zhang & Sennrich 2019, arXiv:1910.07467).
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm(x: &Array, weight: Option<&Array>, epsilon: f64) -> Result<RmsNorm> {
    let Normalized { output, inverse_std: inverse_rms, .. } = normalize(x, weight, None, false, epsilon)?;
    Ok(RmsNorm { output, inverse_rms })
}

/// The gradients of [`rms_norm`], given that of its output.
///
/// # Errors
/// If `grad` does not fit `x`, or `inverse_rms` is not that of the forward pass.
pub fn rms_norm_backward(
    x: &Array,
    weight: Option<&Array>,
    inverse_rms: &Array,
    grad: &Array,
) -> Result<Gradients> {
    backward(x, weight, false, &Statistics { mean: None, inverse_std: inverse_rms }, grad)
}

/// The gradients of [`layer_norm`], given that of its output.
///
/// # Errors
/// If `grad` does not fit `x`, or `mean` and `inverse_std` are not those of the forward pass.
pub fn layer_norm_backward(
    x: &Array,
    weight: Option<&Array>,
    has_bias: bool,
    mean: &Array,
    inverse_std: &Array,
    grad: &Array,
) -> Result<Gradients> {
    backward(x, weight, has_bias, &Statistics { mean: Some(mean), inverse_std }, grad)
}

/// Statistics of each row from a forward pass; rows that are not centred have no mean.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    mean: Option<&'a Array>,
    inverse_std: &'a Array,
}

fn backward(
    x: &Array,
    weight: Option<&Array>,
    has_bias: bool,
    statistics: &Statistics<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let Statistics { mean, inverse_std } = *statistics;
    let features = features(x)?;
    check_parameter("weight", weight, x, features)?;
    let like_x = || "the gradient of the output has its shape".to_owned();
    grad.require_shape(NAME, "grad", x.dims(), like_x)?;
    let rows = &x.dims()[..x.rank() - 1];
    for (argument, statistic) in [("mean", mean), ("inverse_std", Some(inverse_std))] {
        let Some(statistic) = statistic else { continue };
        require_statistic(statistic, x, argument)?;
        statistic.require_shape(NAME, argument, rows, || "one entry for each row of x".to_owned())?;
    }
    grad.require_like(x, NAME, "grad")?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        let weight = weight.map(Array::contiguous).transpose()?;
        let (mean, inverse_std) = (mean.map(Array::contiguous).transpose()?, inverse_std.contiguous()?);
        let statistics = Statistics { mean: mean.as_ref(), inverse_std: &inverse_std };
        return cuda::backward(&device, &x, weight.as_ref(), has_bias, &statistics, &grad);
    }
    let axes = (0..x.rank() - 1).collect::<Vec<_>>();
    with_element!(x.dtype(), NAME, T => {
        let weight = weight.map(Array::contiguous).transpose()?;
        let affine = cpu::Affine { weight: weight.as_ref().map(Array::as_slice).transpose()?, bias: None };
        let inverse_std = inverse_std.to_vec::<T>()?;
        let means = mean.map_or_else(|| Ok(vec![0.0; inverse_std.len()]), Array::to_vec::<T>)?;
        let statistics = cpu::Statistics { centred: mean.is_some(), mean: means, inverse_std };
        let (x_slice, grad_slice) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        let grad_x = Array::build(x.shape(), &x.device(), |out: &mut [T]| {
            cpu::backward(x_slice, grad_slice, features, &statistics, &affine, out);
        })?;
        let grad_weight = if weight.is_some() {
            let normalized = Array::build(x.shape(), &x.device(), |out: &mut [T]| {
                let plain = cpu::Affine { weight: None, bias: None };
                cpu::forward(x_slice, features, &statistics, &plain, out);
            })?;
            Some(ops::sum(&ops::mul(&grad, &normalized)?, &axes, false)?)
        } else {
            None
        };
        let grad_bias = has_bias.then(|| ops::sum(&grad, &axes, false)).transpose()?;
        Ok(Gradients { x: grad_x, weight: grad_weight, bias: grad_bias })
    })
}
