//! Evaluates the operators on multivector fields of golden files. Every option is read from the metadata.

use super::{Golden, inputs::Inputs};
use gradewise_autograd::{
    Tensor,
    fields::{
        self, Aggregation, BatchNorm, ConjugateLinear, ConvolutionOptions, NormOptions, Padding, Pairing,
        Side, SpectralOptions, Statistics, SteerableKernel, SteerableLayerWeights, SteerablePadding,
        Whitening,
    },
    stack,
};
use gradewise_core::OrderedMetric;
use std::{fmt::Display, str::FromStr};

/// An operation's output, and its additional outputs by their name in the file after `out.`.
pub(super) type Evaluated = (Tensor, Vec<(&'static str, Tensor)>);

/// The layouts that an operation's tensors may have; `None` for other operations.
pub(super) fn layouts(operation: &str) -> Option<&'static [&'static str]> {
    const FIELD: &[&str] = &["blades,batch,space...,channels", "blades,batch,channels"];
    match operation {
        "cs_kernel" => Some(&["c_out,blade_out,c_in,blade_in,space..."]),
        "clifford_conv"
        | "clifford_conv_transpose"
        | "g3_conv"
        | "g3_conv_transpose"
        | "clifford_spectral_conv"
        | "clifford_linear"
        | "clifford_batch_norm"
        | "clifford_group_norm"
        | "mv_act"
        | "g3_vsilu"
        | "g3_group_norm"
        | "pga_conjugate_linear"
        | "cs_conv"
        | "cs_layer_norm"
        | "cs_mv_gelu" => Some(FIELD),
        _ => None,
    }
}

/// Whether the operation multiplies matrices, which TF32 affects.
pub(super) fn has_matrix_products(operation: &str) -> bool {
    layouts(operation).is_some()
        && !matches!(operation, "mv_act" | "g3_vsilu" | "g3_group_norm" | "cs_layer_norm" | "cs_mv_gelu")
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Evaluates the file's operation; `None` if it is not an operation on fields.
pub(super) fn evaluate(golden: &Golden<'_>, inputs: &Inputs) -> Result<Option<Evaluated>, String> {
    let alone = |result: Result<Tensor, String>| result.map(|y| Some((y, Vec::new())));
    match golden.operation {
        "clifford_conv" | "clifford_conv_transpose" => alone(convolution(golden, inputs)),
        "g3_conv" | "g3_conv_transpose" => alone(g3_convolution(golden, inputs)),
        "clifford_spectral_conv" => alone(spectral(golden, inputs)),
        "clifford_linear" => {
            let (x, weight) = (inputs.get("x")?, inputs.get("weight")?);
            alone(fields::clifford_linear(&metric(golden)?, x, weight, inputs.optional("bias")).map_err(text))
        }
        "clifford_batch_norm" => batch_norm(golden, inputs).map(Some),
        "clifford_group_norm" => alone(group_norm(golden, inputs)),
        "mv_act" | "g3_vsilu" => alone(activation(golden, inputs)),
        "g3_group_norm" => {
            let (weight, bias) = (inputs.get("weight")?, inputs.get("bias")?);
            let scale = golden.flag("scale_norm", false)?.then_some(0.0);
            let groups = required(golden, "num_groups")?;
            alone(fields::g3_group_norm(inputs.get("x")?, weight, bias, groups, scale).map_err(text))
        }
        "pga_conjugate_linear" => {
            let operands = ConjugateLinear {
                x: inputs.get("x")?,
                action: inputs.get("_action")?,
                weight: inputs.get("weight")?,
                embed: inputs.get("embed_e0")?,
            };
            let (blades, action) = (list(golden, "input_blades")?, list(golden, "action_blades")?);
            alone(fields::pga_conjugate_linear(&operands, &blades, &action).map_err(text))
        }
        "cs_kernel" => {
            // [J, out, I, *taps, in] as the file has it: [out, J, in, I, *taps].
            let kernel = steerable_kernel(golden, inputs)?;
            let kernel = fields::cs_kernel(&metric(golden)?, &kernel).map_err(text)?;
            let rank = kernel.shape().rank();
            let axes: Vec<usize> = [1, 0, rank - 1, 2].into_iter().chain(3..rank - 1).collect();
            alone(kernel.permute(&axes).map_err(text))
        }
        "cs_conv" => alone(steerable(golden, inputs)),
        "cs_layer_norm" => alone(fields::cs_layer_norm(&metric(golden)?, inputs.get("x")?).map_err(text)),
        "cs_mv_gelu" => alone(fields::cs_mv_gelu(inputs.get("x")?).map_err(text)),
        _ => Ok(None),
    }
}

fn metric(golden: &Golden<'_>) -> Result<OrderedMetric, String> {
    golden.file.metadata.get("metric").ok_or("the metadata has no key `metric`")?.parse().map_err(text)
}

fn required<T: FromStr>(golden: &Golden<'_>, key: &str) -> Result<T, String> {
    let value = golden.file.metadata.get(key).ok_or_else(|| format!("the metadata has no key `{key}`"))?;
    value.parse().map_err(|_| format!("metadata `{key}` has the value `{value}`"))
}

/// Parses whole numbers separated by commas.
fn list(golden: &Golden<'_>, key: &str) -> Result<Vec<usize>, String> {
    let value = golden.file.metadata.get(key).ok_or_else(|| format!("the metadata has no key `{key}`"))?;
    let numbers = value.split(',').filter(|number| !number.trim().is_empty());
    numbers
        .map(|number| number.trim().parse().map_err(|_| format!("metadata `{key}` has the value `{value}`")))
        .collect()
}

/// Stacks the tensors `name.0`, `name.1`, … along a new leading axis; at most `most` of them.
fn stacked(inputs: &Inputs, name: &str, most: usize) -> Result<Tensor, String> {
    let parts: Vec<&Tensor> = (0..most).map_while(|at| inputs.optional(&format!("{name}.{at}"))).collect();
    stack(&parts, 0).map_err(text)
}

fn options(golden: &Golden<'_>) -> Result<ConvolutionOptions, String> {
    Ok(ConvolutionOptions {
        stride: list(golden, "stride")?,
        dilation: list(golden, "dilation")?,
        padding: list(golden, "padding")?.into_iter().map(|padding| [padding, padding]).collect(),
        mode: Padding::Zeros,
        groups: required(golden, "groups")?,
    })
}

/// Adds a bias `[blades, channels]` to a field.
fn biased(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor, String> {
    let Some(bias) = bias else { return Ok(y) };
    let mut shape = vec![1; y.shape().rank()];
    let last = shape.len() - 1;
    (shape[0], shape[last]) = (y.shape()[0], y.shape()[last]);
    y.add(&bias.reshape(shape).map_err(text)?).map_err(text)
}

fn convolution(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let (metric, options) = (metric(golden)?, options(golden)?);
    let (x, bias) = (inputs.get("x")?, inputs.optional("bias"));
    if golden.flag("rotation", false)? {
        let weights = stacked(inputs, "weight", 4)?;
        let kernel = fields::rotation_kernel(&weights, inputs.get("scale_param")?).map_err(text)?;
        return biased(fields::correlate(x, &kernel, &options).map_err(text)?, bias);
    }
    let weights = stacked(inputs, "weight", metric.blade_count())?;
    if golden.operation == "clifford_conv" {
        return fields::clifford_conv(&metric, x, &weights, bias, &options).map_err(text);
    }
    let output_padding = list(golden, "output_padding")?;
    fields::clifford_conv_transpose(&metric, x, &weights, bias, &options, &output_padding).map_err(text)
}

fn g3_convolution(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let (x, options) = (inputs.get("x")?, options(golden)?);
    let (weights, scale) = (stacked(inputs, "weights", 4)?, inputs.get("scale_param")?);
    let y = if golden.operation == "g3_conv" {
        fields::correlate(x, &fields::g3_kernel(&weights, scale).map_err(text)?, &options)
    } else {
        let kernel = fields::g3_kernel_transposed(&weights, scale).map_err(text)?;
        fields::correlate_transposed(x, &kernel, &options, &list(golden, "output_padding")?)
    };
    let bias = inputs.optional("bias.0").map(|_| stacked(inputs, "bias", 3)).transpose()?;
    biased(y.map_err(text)?, bias.as_ref())
}

fn spectral(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let choice = |key: &str| golden.file.metadata.get(key).map_or("", String::as_str);
    let options = SpectralOptions {
        modes: list(golden, "modes")?,
        pairing: match choice("pairing") {
            "reference" => Pairing::Reference,
            "dual" => Pairing::Dual,
            other => {
                return Err(format!(
                    "metadata `pairing` has the value `{other}`, expected reference or dual"
                ));
            }
        },
        side: match choice("side") {
            "right" => Side::Right,
            "left" => Side::Left,
            other => return Err(format!("metadata `side` has the value `{other}`, expected right or left")),
        },
        octant_bug: golden.flag("octant_bug", false)?,
    };
    let weights = if golden.flag("multiply", true)? { Some(inputs.get("weights")?) } else { None };
    fields::clifford_spectral_conv(&metric(golden)?, inputs.get("x")?, weights, &options).map_err(text)
}

fn norm_options(golden: &Golden<'_>) -> Result<NormOptions, String> {
    let whitening = match golden.file.metadata.get("whitening").map(String::as_str) {
        Some("lower") => Whitening::Lower,
        Some("reference") => Whitening::Reference,
        other => {
            return Err(format!("metadata `whitening` has the value {other:?}, expected lower or reference"));
        }
    };
    Ok(NormOptions { epsilon: required(golden, "eps")?, whitening })
}

/// The bias `[I, C]`: as stored, or with the stored elements read as `[C, I]`, as the reference does.
fn norm_bias(golden: &Golden<'_>, inputs: &Inputs) -> Result<Option<Tensor>, String> {
    let Some(bias) = inputs.optional("bias") else { return Ok(None) };
    match golden.file.metadata.get("bias_order").map(String::as_str) {
        Some("blade,channel") => Ok(Some(bias.clone())),
        Some("channel,blade") => {
            let [blades, channels] = bias.shape().dims() else {
                return Err(format!("`in.bias` has shape {}, expected [blades, channels]", bias.shape()));
            };
            let turned = bias.reshape([*channels, *blades]).and_then(|bias| bias.transpose(0, 1));
            turned.map(Some).map_err(text)
        }
        other => Err(format!(
            "metadata `bias_order` has the value {other:?}, expected blade,channel or channel,blade"
        )),
    }
}

fn batch_norm(golden: &Golden<'_>, inputs: &Inputs) -> Result<Evaluated, String> {
    let running = inputs.optional("running_mean").zip(inputs.optional("running_cov"));
    let running = running.map(|(mean, cov)| Statistics { mean: mean.clone(), covariance: cov.clone() });
    let bias = norm_bias(golden, inputs)?;
    let parameters = BatchNorm { weight: inputs.optional("weight"), bias: bias.as_ref() };
    let training = golden.flag("training", true)?;
    let given = running.as_ref().filter(|_| !training);
    let (y, statistics) =
        fields::clifford_batch_norm(inputs.get("x")?, parameters, given, norm_options(golden)?)
            .map_err(text)?;
    let mut more = Vec::new();
    if let Some(running) = running.filter(|_| training) {
        let momentum = required(golden, "momentum")?;
        // Statistics of 16-bit fields are in `f32`.
        let updated = |running: &Tensor, batch: &Tensor| {
            let running = running.detach().cast(batch.dtype())?;
            batch.detach().sub(&running)?.mul_scalar(momentum)?.add(&running)
        };
        more.push(("running_mean", updated(&running.mean, &statistics.mean).map_err(text)?));
        more.push(("running_cov", updated(&running.covariance, &statistics.covariance).map_err(text)?));
    }
    Ok((y, more))
}

fn group_norm(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let bias = norm_bias(golden, inputs)?;
    let parameters = BatchNorm { weight: inputs.optional("weight"), bias: bias.as_ref() };
    let channels = required(golden, "channels_per_group")?;
    fields::clifford_group_norm(inputs.get("x")?, parameters, channels, norm_options(golden)?).map_err(text)
}

fn activation(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let x = inputs.get("x")?;
    let linear = || -> Result<(Tensor, &Tensor), String> {
        let weight = inputs.get("conv.weight")?;
        let channels = weight.shape().first().copied().unwrap_or(0);
        let blades = weight.shape().elements().checked_div(channels).unwrap_or(0);
        Ok((weight.reshape([channels, blades]).map_err(text)?, inputs.get("conv.bias")?))
    };
    let weights;
    let aggregation = match golden.file.metadata.get("agg").map(String::as_str) {
        Some("linear") => {
            weights = linear()?;
            Aggregation::Linear { weight: &weights.0, bias: weights.1 }
        }
        Some("sum") => Aggregation::Sum,
        Some("mean") => Aggregation::Mean,
        other => return Err(format!("metadata `agg` has the value {other:?}, expected linear, sum or mean")),
    };
    if golden.operation == "g3_vsilu" {
        return fields::g3_vsilu(x, aggregation).map_err(text);
    }
    let (blades, kernel) = (list(golden, "input_blades")?, list(golden, "kernel_blades")?);
    fields::mv_act(x, &blades, &kernel, aggregation).map_err(text)
}

fn steerable_kernel(golden: &Golden<'_>, inputs: &Inputs) -> Result<SteerableKernel, String> {
    let named = |name: &str| {
        let short = inputs.optional(name);
        short.or_else(|| inputs.optional(&format!("CliffordSteerableKernel_0.{name}")))
    };
    let get = |name: &str| named(name).cloned().ok_or_else(|| format!("the file has no tensor `in.{name}`"));
    let count = required::<usize>(golden, "num_layers")?.max(2);
    let layer = |at: usize| -> Result<SteerableLayerWeights, String> {
        let of =
            |name: &str| format!("KernelNetwork_0.FullyConnectedSteerableGeometricProductLayer_{at}.{name}");
        Ok(SteerableLayerWeights {
            product: get(&of("WeightedCayley_0.weight"))?,
            right: get(&of("MVLinear_0.weight"))?,
            right_norm: get(&of("GradeNorm_0.factor"))?,
            linear: get(&of("MVLinear_1.weight"))?,
            bias: named(&of("MVLinear_1.bias")).cloned(),
            norm: (at + 1 < count)
                .then(|| get(&format!("KernelNetwork_0.GradeNorm_{at}.factor")))
                .transpose()?,
        })
    };
    Ok(SteerableKernel {
        size: required(golden, "kernel_size")?,
        inputs: required(golden, "c_in")?,
        outputs: required(golden, "c_out")?,
        bias_blades: list(golden, "bias_dims")?,
        position_width: get("rel_pos_sigma")?,
        widths: get("ScalarShell_0.kernel_width")?,
        head: get("WeightedCayley_0.weight")?,
        layers: (0..count).map(layer).collect::<Result<_, _>>()?,
    })
}

fn steerable(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let kernel = steerable_kernel(golden, inputs)?;
    let padding = match golden.file.metadata.get("padding_mode").map(String::as_str) {
        Some("same") => SteerablePadding::Same,
        Some("valid") => SteerablePadding::Valid,
        Some("zeros") => SteerablePadding::Filled(Padding::Zeros),
        Some("wrap") => SteerablePadding::Filled(Padding::Circular),
        Some("symmetric") => SteerablePadding::Filled(Padding::Symmetric),
        Some("reflect") => SteerablePadding::Filled(Padding::Reflect),
        other => return Err(format!("metadata `padding_mode` has the value {other:?}")),
    };
    let bias = inputs
        .optional("bias")
        .map(|bias| bias.reshape([kernel.outputs, kernel.bias_blades.len()]).map_err(text));
    let (bias, stride) = (bias.transpose()?, golden.option("stride", 1)?);
    fields::cs_conv(&metric(golden)?, inputs.get("x")?, &kernel, bias.as_ref(), stride, padding).map_err(text)
}
