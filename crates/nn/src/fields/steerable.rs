//! The Clifford-steerable convolution.

use super::refuse;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result, Visitor,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor, TensorId, current_policy,
    fields::{self, SteerableKernel, SteerableLayerWeights, SteerablePadding},
    is_grad_enabled,
};
use gradewise_core::OrderedMetric;
use gradewise_kernels::{Compute, DType};
use std::sync::{Mutex, PoisonError};

/// A convolution whose kernel is an equivariant network of the position of the tap ([`fields::cs_conv`]), and of the input field if it
/// is [conditioned](SteerableConvBuilder::conditioned): it commutes with shifts and with those isometries of the metric that map the grid
/// to itself.
///
/// Parameters have the names of the published implementation: `CliffordSteerableKernel_0.…` and `bias`.
#[derive(Debug, DeepClone)]
pub struct SteerableConv {
    metric: OrderedMetric,
    size: usize,
    channels: [usize; 2],
    bias_blades: Vec<usize>,
    stride: usize,
    padding: SteerablePadding,
    conditioned: bool,
    position_width: Parameter,
    widths: Parameter,
    head: Parameter,
    layers: Vec<KernelLayer>,
    bias: Option<Parameter>,
    kept: Kept,
}

/// A cache of the kernel for passes that record no gradients, valid until a parameter changes. A clone is empty.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<(Origin, Tensor)>>);

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The cache key of a kernel: the parameters' tensors, whose ids change with their values, and the arithmetic in use.
type Origin = (Vec<TensorId>, Option<DType>, Compute);

/// One layer of the kernel network.
#[derive(Debug, DeepClone)]
struct KernelLayer {
    product: Parameter,
    right: Parameter,
    right_norm: Parameter,
    linear: Parameter,
    bias: Parameter,
    norm: Option<Parameter>,
}

/// Settings of a [`SteerableConv`] from `inputs` to `outputs` channels with `size` taps along each axis, an odd number. The kernel network
/// has 4 layers of 12 channels by default.
#[derive(Clone, Debug, Builder)]
pub struct SteerableConvBuilder {
    #[builder(by_ref)]
    metric: OrderedMetric,
    inputs: usize,
    outputs: usize,
    size: usize,
    #[builder(default = 4, skip)]
    layers: usize,
    #[builder(default = 12, skip)]
    hidden: usize,
    /// Whether there is a bias; yes by default.
    #[builder(default = true)]
    bias: bool,
    /// The blades that biases are added to, also within the kernel network. Biases on blades other than the scalar break equivariance.
    #[builder(default = vec![0], by_ref)]
    bias_blades: Vec<usize>,
    /// The stride.
    #[builder(default = 1)]
    stride: usize,
    /// The padding at the boundaries of the field.
    #[builder(default = SteerablePadding::Same)]
    padding: SteerablePadding,
    /// Whether the kernel depends on the mean of the input field over space, too ([`fields::cs_conv_conditioned`], Szarvas and Zhdanov 2025,
    /// arXiv:2510.14007); no by default. Each sample has a kernel of its own then, which costs as many times more as there are samples.
    #[builder(default = false)]
    conditioned: bool,
}

impl SteerableConv {
    /// The current weights of the kernel network.
    pub fn kernel(&self) -> SteerableKernel {
        let layer = |layer: &KernelLayer| SteerableLayerWeights {
            product: layer.product.tensor(),
            right: layer.right.tensor(),
            right_norm: layer.right_norm.tensor(),
            linear: layer.linear.tensor(),
            bias: Some(layer.bias.tensor()),
            norm: layer.norm.as_ref().map(Parameter::tensor),
        };
        SteerableKernel {
            size: self.size,
            inputs: self.channels[0],
            outputs: self.channels[1],
            bias_blades: self.bias_blades.clone(),
            position_width: self.position_width.tensor(),
            widths: self.widths.tensor(),
            head: self.head.tensor(),
            layers: self.layers.iter().map(layer).collect(),
        }
    }

    /// The kernel between blades, `[I, out, I, *taps, in]`. It is cached where no gradients are recorded.
    fn taps(&self) -> Result<Tensor> {
        let compute = || fields::cs_kernel(&self.metric, &self.kernel());
        if is_grad_enabled() {
            // A training pass: the parameters will change, so a cached kernel would only use memory.
            *self.kept.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(compute()?);
        }
        let parameters = self.parameters().iter().map(|parameter| parameter.tensor().id()).collect();
        let origin: Origin = (parameters, current_policy().map(|policy| policy.dtype()), Compute::current());
        // The kernel is replaced as a whole, so a panic cannot leave it inconsistent.
        let mut kept = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((known, kernel)) if *known == origin => Ok(kernel.clone()),
            _ => {
                let kernel = compute()?;
                *kept = Some((origin, kernel.clone()));
                Ok(kernel)
            }
        }
    }
}

impl Module for SteerableConv {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        const KERNEL: &str = "CliffordSteerableKernel_0";
        let mut report =
            |name: String, parameter: &Parameter| visitor.parameter(&format!("{KERNEL}.{name}"), parameter);
        report("rel_pos_sigma".to_owned(), &self.position_width);
        report("ScalarShell_0.kernel_width".to_owned(), &self.widths);
        report("WeightedCayley_0.weight".to_owned(), &self.head);
        for (at, layer) in self.layers.iter().enumerate() {
            let of = |name: &str| {
                format!("KernelNetwork_0.FullyConnectedSteerableGeometricProductLayer_{at}.{name}")
            };
            report(of("WeightedCayley_0.weight"), &layer.product);
            report(of("MVLinear_0.weight"), &layer.right);
            report(of("GradeNorm_0.factor"), &layer.right_norm);
            report(of("MVLinear_1.weight"), &layer.linear);
            report(of("MVLinear_1.bias"), &layer.bias);
            if let Some(norm) = &layer.norm {
                report(format!("KernelNetwork_0.GradeNorm_{at}.factor"), norm);
            }
        }
        if let Some(bias) = &self.bias {
            visitor.parameter("bias", bias);
        }
    }
}

impl Layer for SteerableConv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("SteerableConv::forward", x, || {
            let bias = match &self.bias {
                Some(bias) => Some(bias.tensor().reshape([self.channels[1], self.bias_blades.len()])?),
                None => None,
            };
            if self.conditioned {
                let (kernel, condition) = (self.kernel(), fields::cs_condition(&self.metric, x)?);
                let (stride, padding) = (self.stride, self.padding);
                let bias = bias.as_ref();
                return Ok(fields::cs_conv_conditioned(
                    &self.metric,
                    x,
                    &kernel,
                    &condition,
                    bias,
                    stride,
                    padding,
                )?);
            }
            let bias = bias.as_ref().map(|bias| (bias, &self.bias_blades[..]));
            Ok(fields::cs_correlate(&self.metric, x, &self.taps()?, bias, self.stride, self.padding)?)
        })
    }
}

impl SteerableConvBuilder {
    /// Layers of the kernel network, at least 2, and their channels.
    #[must_use]
    pub fn network(mut self, layers: usize, hidden: usize) -> Self {
        (self.layers, self.hidden) = (layers, hidden);
        self
    }

    /// Draws the parameters.
    ///
    /// # Errors
    /// A metric with null generators, less than 2 layers of the kernel network, another size of 0, blades that the metric does not have, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<SteerableConv> {
        const NAME: &str = "SteerableConv";
        let placement = placement.into();
        let Self { metric, inputs, outputs, size, layers, hidden, bias, .. } = self;
        let Self { bias_blades, stride, padding, conditioned, .. } = self;
        at_least_one(NAME, &[("inputs", inputs), ("outputs", outputs), ("size", size)])?;
        at_least_one(NAME, &[("hidden", hidden), ("stride", stride)])?;
        if layers < 2 {
            return refuse(NAME, "layers", layers, "at least 2");
        }
        let seen = if conditioned { 1 + inputs } else { 1 };
        if metric.signature().r > 0 {
            return refuse(NAME, "metric", &metric, "generators that square to 1 or -1");
        }
        if bias_blades.iter().any(|&blade| blade >= metric.blade_count()) {
            return refuse(
                NAME,
                "bias_blades",
                &bias_blades,
                format!("blades below {}", metric.blade_count()),
            );
        }
        let (grades, paths) = (metric.dimension() + 1, metric.paths().len());
        let mut normal = |shape: &[usize], variance: f64| placement.normal(shape, variance.sqrt(), rng);
        let of_product = |inputs: usize| 1.0 / (inputs.max(1) * grades) as f64;
        let zeros = |shape: &[usize]| placement.filled(shape, 0.0);
        let mut network = Vec::with_capacity(layers);
        for at in 0..layers {
            let (from, to) = (
                if at == 0 { seen } else { hidden },
                if at + 1 == layers { inputs * outputs } else { hidden },
            );
            let variance = 1.0 / from.max(1) as f64;
            network.push(KernelLayer {
                product: normal(&[to, from, paths], of_product(from))?,
                right: normal(&[from, from, grades], variance)?,
                right_norm: zeros(&[1, from, grades])?,
                linear: normal(&[to, from, grades], variance)?,
                bias: normal(&[1, to, bias_blades.len()], 0.01 * variance)?,
                norm: (at + 1 < layers).then(|| zeros(&[1, to, grades])).transpose()?,
            });
        }
        let head = normal(&[outputs, inputs, paths], of_product(inputs))?;
        let mut bias_shape = vec![1; metric.dimension() + 3];
        let last = bias_shape.len() - 1;
        (bias_shape[1], bias_shape[last]) = (outputs, bias_blades.len());
        let bias = bias.then(|| zeros(&bias_shape)).transpose()?;
        let position_width = placement.filled([1, 1, 1], 1.0)?;
        let widths = placement.uniform([outputs, inputs, grades], (0.0, 0.2), rng)?;
        Ok(SteerableConv {
            metric,
            size,
            channels: [inputs, outputs],
            bias_blades,
            stride,
            padding,
            conditioned,
            position_width,
            widths,
            head,
            layers: network,
            bias,
            kept: Kept::default(),
        })
    }
}
