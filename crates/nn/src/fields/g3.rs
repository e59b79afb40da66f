//! Layers that rotate three-dimensional vectors on a planar grid, and their ResNet.

use super::{G3GroupNorm, stacked};
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result, Visitor,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, Aggregation, ConvolutionOptions},
};
use serde::{Deserialize, Serialize};

/// A convolution whose taps rotate and scale vectors, three blades (e1, e2, e3) on a planar grid ([`fields::g3_kernel`]), or its transpose,
/// which applies the inverse rotations.
///
/// Parameters: `weights.0` … `weights.3`, the quaternions, and `scale_param`, each `[out, in, *taps]` (`[in, out, *taps]` if transposed),
/// uniform in ±1/√(second size · taps); `bias.0` … `bias.2` `[out]`, if there is a bias.
#[derive(Debug, DeepClone)]
pub struct G3Conv {
    weights: [Parameter; 4],
    scale: Parameter,
    bias: Option<[Parameter; 3]>,
    options: ConvolutionOptions,
    transposed: bool,
}

/// Settings of a [`G3Conv`] from `inputs` to `outputs` channels with `taps` by `taps` taps.
#[derive(Clone, Debug, Builder)]
pub struct G3ConvBuilder {
    inputs: usize,
    outputs: usize,
    taps: usize,
    /// The stride.
    #[builder(default = 1)]
    stride: usize,
    /// Zeros around the field; ⌊taps/2⌋ by default.
    #[builder(default = taps / 2)]
    padding: usize,
    /// Whether there is a bias; no by default.
    #[builder(default = false)]
    bias: bool,
    #[builder(default = false, skip)]
    transposed: bool,
}

impl G3ConvBuilder {
    /// The transposed convolution.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.transposed = true;
        self
    }

    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(self, placement: impl Into<Placement>, rng: &mut R) -> Result<G3Conv> {
        at_least_one(
            "G3Conv",
            &[
                ("inputs", self.inputs),
                ("outputs", self.outputs),
                ("taps", self.taps),
                ("stride", self.stride),
            ],
        )?;
        let (placement, Self { inputs, outputs, taps, stride, padding, bias, transposed }) =
            (placement.into(), self);
        let [first, second] = if transposed { [inputs, outputs] } else { [outputs, inputs] };
        let bound = 1.0 / ((second * taps * taps).max(1) as f64).sqrt();
        let mut draw = |shape: &[usize]| placement.uniform(shape, (-bound, bound), rng);
        let shape = [first, second, taps, taps];
        let weights = [draw(&shape)?, draw(&shape)?, draw(&shape)?, draw(&shape)?];
        let scale = draw(&shape)?;
        let bias = match bias {
            true => Some([draw(&[outputs])?, draw(&[outputs])?, draw(&[outputs])?]),
            false => None,
        };
        let mut options = ConvolutionOptions::new(2);
        options.stride = vec![stride; 2];
        options.padding = vec![[padding; 2]; 2];
        Ok(G3Conv { weights, scale, bias, options, transposed })
    }
}

impl Module for G3Conv {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, weight) in self.weights.iter().enumerate() {
            visitor.parameter(&format!("weights.{index}"), weight);
        }
        visitor.parameter("scale_param", &self.scale);
        for (index, bias) in self.bias.iter().flatten().enumerate() {
            visitor.parameter(&format!("bias.{index}"), bias);
        }
    }
}

impl Layer for G3Conv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("G3Conv::forward", x, || {
            let (weights, scale) = (stacked(&self.weights)?, self.scale.tensor());
            let y = if self.transposed {
                fields::correlate_transposed(
                    x,
                    &fields::g3_kernel_transposed(&weights, &scale)?,
                    &self.options,
                    &[0, 0],
                )?
            } else {
                fields::correlate(x, &fields::g3_kernel(&weights, &scale)?, &self.options)?
            };
            let Some(bias) = &self.bias else { return Ok(y) };
            let channels = y.shape()[4];
            Ok(y.add(&stacked(bias)?.reshape([3, 1, 1, 1, channels])?)?)
        })
    }
}

/// Gates vectors: x·σ(t), with t a learned linear map of the components ([`fields::g3_vsilu`]).
///
/// Parameters: `conv.weight` `[channels, 1, 1, 1, 3]` and `conv.bias` `[channels]`, uniform in ±1/√3.
#[derive(Debug, Module, DeepClone)]
pub struct G3Gate {
    conv: GateConv,
}

#[derive(Debug, Module, DeepClone)]
struct GateConv {
    weight: Parameter,
    bias: Parameter,
}

impl G3Gate {
    /// Draws the parameters for `channels` channels.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        channels: usize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("G3Gate", &[("channels", channels)])?;
        let (placement, bounds) = (placement.into(), (-1.0 / 3.0f64.sqrt(), 1.0 / 3.0f64.sqrt()));
        let weight = placement.uniform([channels, 1, 1, 1, 3], bounds, rng)?;
        let bias = placement.uniform([channels], bounds, rng)?;
        Ok(Self { conv: GateConv { weight, bias } })
    }
}

impl Layer for G3Gate {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("G3Gate::forward", x, || {
            let (weight, bias) = (self.conv.weight.tensor(), self.conv.bias.tensor());
            let weight = weight.reshape([bias.shape()[0], 3])?;
            Ok(fields::g3_vsilu(x, Aggregation::Linear { weight: &weight, bias: &bias })?)
        })
    }
}

/// Position and groups of the normalisation in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockNorm {
    /// Groups of channels; `None` for no normalisation.
    pub groups: Option<usize>,
    /// Whether the norm precedes the gate.
    pub before: bool,
}

/// Two convolutions, each preceded by a gate, and a shortcut.
#[derive(Debug, Module, DeepClone)]
pub(super) struct G3Block {
    conv1: G3Conv,
    conv2: G3Conv,
    norm1: Option<G3GroupNorm>,
    norm2: Option<G3GroupNorm>,
    shortcut: Option<G3Conv>,
    act1: G3Gate,
    act2: G3Gate,
    #[module(skip)]
    norm_first: bool,
}

impl G3Block {
    pub fn init<R: rand::Rng + ?Sized>(
        inputs: usize,
        outputs: usize,
        norm: BlockNorm,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let of = |channels: usize| {
            norm.groups.map(|groups| G3GroupNorm::init(3, channels, groups, None, placement))
        };
        let shortcut =
            (inputs != outputs).then(|| G3Conv::new(inputs, outputs, 1).init(placement, rng)).transpose()?;
        Ok(Self {
            conv1: G3Conv::new(inputs, outputs, 3).bias(true).init(placement, rng)?,
            conv2: G3Conv::new(outputs, outputs, 3).bias(true).init(placement, rng)?,
            norm1: of(inputs).transpose()?,
            norm2: of(outputs).transpose()?,
            shortcut,
            act1: G3Gate::init(inputs, placement, rng)?,
            act2: G3Gate::init(outputs, placement, rng)?,
            norm_first: norm.before,
        })
    }
}

/// Applies the norm, if there is one.
pub(super) fn normalized(norm: Option<&G3GroupNorm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or(Ok(x.clone()), |norm| norm.forward(x))
}

impl Layer for G3Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gated = |norm: Option<&G3GroupNorm>, gate: &G3Gate, x: &Tensor| match self.norm_first {
            true => gate.forward(&normalized(norm, x)?),
            false => normalized(norm, &gate.forward(x)?),
        };
        let y = self.conv1.forward(&gated(self.norm1.as_ref(), &self.act1, x)?)?;
        let y = self.conv2.forward(&gated(self.norm2.as_ref(), &self.act2, &y)?)?;
        let around = self.shortcut.as_ref().map_or(Ok(x.clone()), |shortcut| shortcut.forward(x))?;
        Ok(y.add(&around)?)
    }
}

/// Sizes of a [`G3ResNet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct G3ResNetConfig {
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Hidden channels.
    pub hidden: usize,
    /// Blocks in each stage.
    pub blocks: Vec<usize>,
    /// Groups of the norms; `None` for no normalisation.
    pub norm: Option<usize>,
    /// Whether norms precede gates.
    pub norm_first: bool,
}

impl Default for G3ResNetConfig {
    fn default() -> Self {
        Self { inputs: 4, outputs: 1, hidden: 64, blocks: vec![2; 4], norm: None, norm_first: true }
    }
}

/// A sequence of blocks.
#[derive(Debug, DeepClone)]
struct Stage(Vec<G3Block>);

impl Module for Stage {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, block) in self.0.iter().enumerate() {
            visitor.module(index, block);
        }
    }
}

/// The ResNet of rotated vectors (Ruhe et al. 2023, arXiv:2302.06594): `[3, batch, height, width, inputs]` to `[…, outputs]`. A scalar and
/// a planar vector form one vector in space.
#[derive(Debug, Module, DeepClone)]
pub struct G3ResNet {
    conv_in1: G3Conv,
    conv_in2: G3Conv,
    conv_out1: G3Conv,
    conv_out2: G3Conv,
    layers: Vec<Stage>,
    act1: G3Gate,
    act2: G3Gate,
}

impl G3ResNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Groups that do not divide the channels, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &G3ResNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, hidden) = (placement.into(), config.hidden);
        at_least_one(
            "G3ResNet",
            &[("inputs", config.inputs), ("outputs", config.outputs), ("hidden", hidden)],
        )?;
        let norm = BlockNorm { groups: config.norm, before: config.norm_first };
        let mut layers = Vec::with_capacity(config.blocks.len());
        for &count in &config.blocks {
            let blocks = (0..count).map(|_| G3Block::init(hidden, hidden, norm, &placement, rng));
            layers.push(Stage(blocks.collect::<Result<_>>()?));
        }
        Ok(Self {
            conv_in1: G3Conv::new(config.inputs, hidden, 1).init(&placement, rng)?,
            conv_in2: G3Conv::new(hidden, hidden, 1).init(&placement, rng)?,
            conv_out1: G3Conv::new(hidden, hidden, 1).init(&placement, rng)?,
            conv_out2: G3Conv::new(hidden, config.outputs, 1).init(&placement, rng)?,
            layers,
            act1: G3Gate::init(hidden, &placement, rng)?,
            act2: G3Gate::init(hidden, &placement, rng)?,
        })
    }
}

impl Layer for G3ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("G3ResNet::forward", x, || {
            let x = self.conv_in2.forward(&self.act1.forward(&self.conv_in1.forward(x)?)?)?;
            let x =
                self.layers.iter().flat_map(|stage| &stage.0).try_fold(x, |x, block| block.forward(&x))?;
            self.conv_out2.forward(&self.act2.forward(&self.conv_out1.forward(&x)?)?)
        })
    }
}
