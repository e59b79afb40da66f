//! The Clifford convolution: ordinary, transposed and rotational.

use super::{refuse, stacked};
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result, Visitor,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, ConvolutionOptions, Padding},
};
use gradewise_core::OrderedMetric;
use gradewise_kernels::{Array, Index};

/// Which blades a bias is added to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldBias {
    /// None.
    None,
    /// The scalar, which preserves equivariance.
    Scalar,
    /// All, as published.
    #[default]
    All,
}

/// How the kernel is formed.
#[derive(Clone, Debug)]
enum Form {
    /// By the geometric product.
    Product,
    /// By the geometric product, transposed; holds the output paddings.
    Transposed(Vec<usize>),
    /// By rotations, of the metric (−1,−1).
    Rotation,
}

/// A Clifford convolution ([`fields::clifford_conv`]), its transpose, or the rotational form; on fields that have all blades or some.
///
/// Parameters: `weight.0` … one kernel `[out, in/groups, *taps]` for each blade (`[in, out/groups, *taps]` if transposed), `bias`
/// `[blades, out]` (`[1, out]` on the scalar alone), and `scale_param`, like a kernel, in the rotational form; all uniform in ±1/√fan with
/// fan = blades·in/groups·taps.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_core::DType;
/// use gradewise_kernels::Device;
/// use gradewise_nn::{fields::CliffordConv, layers::Layer};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let layer = CliffordConv::new(&"1,1".parse()?, 3, 8, &[3, 3]).init(&Device::Cpu, &mut rng)?;
/// let x = Tensor::randn([4, 2, 16, 16, 3], DType::F32, &Device::Cpu, &mut rng)?;
/// assert_eq!(layer.forward(&x)?.shape().dims(), [4, 2, 16, 16, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, DeepClone)]
pub struct CliffordConv {
    metric: OrderedMetric,
    weight: Vec<Parameter>,
    scale: Option<Parameter>,
    bias: Option<Parameter>,
    bias_on: FieldBias,
    form: Form,
    options: ConvolutionOptions,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// Settings of a [`CliffordConv`] from `inputs` to `outputs` channels with `taps` taps along each axis of space. By default its padding
/// preserves the extents of the grid.
#[derive(Clone, Debug, Builder)]
pub struct CliffordConvBuilder {
    #[builder(by_ref)]
    metric: OrderedMetric,
    inputs: usize,
    outputs: usize,
    #[builder(by_ref)]
    taps: Vec<usize>,
    #[builder(default = ConvolutionOptions::new(taps.len()).same(&taps), skip)]
    options: ConvolutionOptions,
    #[builder(default = Form::Product, skip)]
    form: Form,
    /// Which blades the bias is added to; all by default, as published.
    #[builder(default = FieldBias::All)]
    bias: FieldBias,
    /// The blades that the input has; all by default.
    #[builder(default = (0..metric.blade_count()).collect(), by_ref)]
    input_blades: Vec<usize>,
    /// The blades that are computed; all by default.
    #[builder(default = input_blades.clone(), by_ref)]
    output_blades: Vec<usize>,
}

impl CliffordConv {
    /// The kernels, one for each blade.
    pub fn weight(&self) -> &[Parameter] {
        &self.weight
    }

    /// The convolution, without the bias.
    fn convolve(&self, x: &Tensor) -> Result<Tensor> {
        let weights = stacked(&self.weight)?;
        let (metric, options, blades) = (&self.metric, &self.options, self.metric.blade_count());
        let whole = self.inputs.len() == blades && self.outputs.len() == blades;
        Ok(match (&self.form, &self.scale) {
            (Form::Transposed(padding), _) => {
                fields::clifford_conv_transpose(metric, x, &weights, None, options, padding)?
            }
            (Form::Rotation, Some(scale)) => {
                let kernel = fields::rotation_kernel(&weights, &scale.tensor())?;
                let kernel = chosen(&chosen(&kernel, 0, &self.outputs, blades)?, 2, &self.inputs, blades)?;
                fields::correlate(x, &kernel, options)?
            }
            _ if whole => fields::clifford_conv(metric, x, &weights, None, options)?,
            _ => {
                let kernel = fields::clifford_kernel_between(metric, &weights, &self.inputs, &self.outputs)?;
                fields::correlate(x, &kernel, options)?
            }
        })
    }
}

/// Selects blades along an axis of `kernel`.
fn chosen(kernel: &Tensor, axis: usize, blades: &[usize], count: usize) -> Result<Tensor> {
    if blades.len() == count {
        return Ok(kernel.clone());
    }
    Ok(kernel.index_select(axis, &Index::constant(blades, count, &kernel.device())?)?)
}

impl Module for CliffordConv {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (blade, weight) in self.weight.iter().enumerate() {
            visitor.parameter(&format!("weight.{blade}"), weight);
        }
        if let Some(bias) = &self.bias {
            visitor.parameter("bias", bias);
        }
        if let Some(scale) = &self.scale {
            visitor.parameter("scale_param", scale);
        }
    }
}

impl Layer for CliffordConv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordConv::forward", x, || {
            let y = self.convolve(x)?;
            let Some(bias) = &self.bias else { return Ok(y) };
            let bias = bias.tensor();
            let bias = match self.bias_on {
                FieldBias::Scalar => {
                    let mask: Vec<f64> =
                        self.outputs.iter().map(|&blade| if blade == 0 { 1.0 } else { 0.0 }).collect();
                    let mask = Array::constant(&mask, [mask.len(), 1], x.dtype(), &x.device())?;
                    bias.mul(&Tensor::new(mask))?
                }
                _ => bias,
            };
            let mut shape = vec![1; y.shape().rank()];
            let last = shape.len() - 1;
            (shape[0], shape[last]) = (self.outputs.len(), y.shape()[last]);
            Ok(y.add(&bias.reshape(shape)?)?)
        })
    }
}

impl CliffordConvBuilder {
    /// The stride along each axis.
    #[must_use]
    pub fn stride(mut self, stride: &[usize]) -> Self {
        self.options.stride = stride.to_vec();
        self
    }

    /// The padding on both sides of each axis.
    #[must_use]
    pub fn padding(mut self, padding: &[usize]) -> Self {
        self.options.padding = padding.iter().map(|&padding| [padding, padding]).collect();
        self
    }

    /// The values of the padding.
    #[must_use]
    pub fn padding_mode(mut self, mode: Padding) -> Self {
        self.options.mode = mode;
        self
    }

    /// The dilation along each axis. Resets the padding to that which preserves the extents.
    #[must_use]
    pub fn dilation(mut self, dilation: &[usize]) -> Self {
        self.options.dilation = dilation.to_vec();
        self.options = self.options.same(&self.taps);
        self
    }

    /// Splits the channels into groups that are convolved independently.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.options.groups = groups;
        self
    }

    /// Makes it a transposed convolution, with this output padding along each axis.
    #[must_use]
    pub fn transposed(mut self, output_padding: &[usize]) -> Self {
        self.form = Form::Transposed(output_padding.to_vec());
        self
    }

    /// The rotational form, of metric (−1,−1).
    #[must_use]
    pub fn rotation(mut self, rotation: bool) -> Self {
        if rotation {
            self.form = Form::Rotation;
        }
        self
    }

    /// Draws the parameters.
    ///
    /// # Errors
    /// A rotation in another metric, groups that do not divide the channels, blades that the metric does not have, a dtype the device does
    /// not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<CliffordConv> {
        const NAME: &str = "CliffordConv";
        let placement = placement.into();
        let Self { metric, inputs, outputs, taps, options, form, bias: bias_on, input_blades, output_blades } =
            self;
        at_least_one(NAME, &[("inputs", inputs), ("outputs", outputs)])?;
        let (blades, groups) = (metric.blade_count(), options.groups);
        if taps.contains(&0) {
            return refuse(NAME, "taps", &taps, "at least 1 along each axis");
        }
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            return refuse(NAME, "groups", groups, format!("a divisor of {inputs} and {outputs} channels"));
        }
        if input_blades.iter().chain(&output_blades).any(|&blade| blade >= blades) {
            let given = (&input_blades, &output_blades);
            return refuse(NAME, "blades", given, format!("blades of the metric {metric}: below {blades}"));
        }
        let whole = input_blades.len() == blades && output_blades.len() == blades;
        match form {
            Form::Rotation if metric.squares() != [-1, -1] => {
                return refuse(NAME, "rotation", &metric, "the metric -1,-1");
            }
            Form::Transposed(_) if !whole => {
                return refuse(
                    NAME,
                    "blades",
                    (&input_blades, &output_blades),
                    "all blades of a transposed convolution",
                );
            }
            _ => {}
        }
        let volume: usize = taps.iter().product();
        let bound = |fan: usize| 1.0 / (fan.max(1) as f64).sqrt();
        let scale_bound = bound(inputs / groups * volume);
        let bound = bound(blades * inputs / groups * volume);
        let shape = match form {
            Form::Transposed(_) => [&[inputs, outputs / groups], &taps[..]].concat(),
            _ => [&[outputs, inputs / groups], &taps[..]].concat(),
        };
        let mut draw = |shape: &[usize], bound: f64| placement.uniform(shape, (-bound, bound), rng);
        let weight = (0..blades).map(|_| draw(&shape, bound)).collect::<Result<_>>()?;
        let scale = matches!(form, Form::Rotation).then(|| draw(&shape, scale_bound)).transpose()?;
        let bias = match bias_on {
            FieldBias::None => None,
            FieldBias::Scalar => Some(draw(&[1, outputs], bound)?),
            FieldBias::All => Some(draw(&[output_blades.len(), outputs], bound)?),
        };
        let (inputs, outputs) = (input_blades, output_blades);
        Ok(CliffordConv { metric, weight, scale, bias, bias_on, form, options, inputs, outputs })
    }
}
