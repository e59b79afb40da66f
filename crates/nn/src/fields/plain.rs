//! The residual network of ordinary convolutions that Clifford networks are compared with.

use super::refuse;
use crate::{DeepClone, Module, Parameter, Placement, Result, error::in_layer_of, layers::Layer};
use gradewise_autograd::{
    Tensor,
    fields::{self, BatchNorm, ConvolutionOptions, NormOptions},
};

/// Sizes of a [`PlainResNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainResNetConfig {
    /// Axes of space.
    pub axes: usize,
    /// Components of a field.
    pub components: usize,
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Hidden channels.
    pub hidden: usize,
    /// Taps along each axis.
    pub taps: usize,
    /// Residual blocks.
    pub blocks: usize,
    /// Whether blocks normalise over all channels and space.
    pub norm: bool,
}

/// An ordinary convolution: `weight` `[out, in, *taps]`, `bias` `[out]`, both uniform in ±1/√(in·taps).
#[derive(Debug, Module, DeepClone)]
struct Conv {
    weight: Parameter,
    bias: Parameter,
}

impl Layer for Conv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let weight = self.weight.tensor();
        let axes = weight.shape().rank() - 2;
        let taps = weight.shape()[2..].to_vec();
        // [out, in, *taps] → [1, out, 1, *taps, in]: a field of one blade.
        let order: Vec<usize> = [0].into_iter().chain(2..axes + 2).chain([1]).collect();
        let kernel = weight.permute(&order)?;
        let (out, channels) = (weight.shape()[0], weight.shape()[1]);
        let kernel = kernel.reshape([&[1, out, 1], &taps[..], &[channels]].concat())?;
        let y = fields::correlate(x, &kernel, &ConvolutionOptions::new(axes).same(&taps))?;
        let mut shape = vec![1; axes + 3];
        shape[axes + 2] = out;
        Ok(y.add(&self.bias.tensor().reshape(shape)?)?)
    }
}

/// Normalises over all channels and space, then scales and shifts each channel.
#[derive(Debug, Module, DeepClone)]
struct Norm {
    weight: Parameter,
    bias: Parameter,
}

impl Layer for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.tensor(), self.bias.tensor());
        let channels = weight.shape()[0];
        let none = BatchNorm { weight: None, bias: None };
        let y = fields::clifford_group_norm(x, none, channels, NormOptions::default())?;
        let mut shape = vec![1; x.shape().rank()];
        shape[x.shape().rank() - 1] = channels;
        Ok(y.mul(&weight.reshape(&shape[..])?)?.add(&bias.reshape(shape)?)?)
    }
}

#[derive(Debug, Module, DeepClone)]
struct Block {
    conv1: Conv,
    conv2: Conv,
    norm1: Option<Norm>,
    norm2: Option<Norm>,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let norm =
            |norm: &Option<Norm>, x: Tensor| norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x));
        let y = norm(&self.norm1, self.conv1.forward(x)?)?.gelu()?;
        let y = norm(&self.norm2, self.conv2.forward(&y)?)?;
        Ok(y.add(x)?.gelu()?)
    }
}

/// Ordinary convolutions in residual blocks between pairs of 1×1 convolutions, on fields `[components, batch, *space, inputs]`, whose
/// components and frames become channels: the baseline of [`CliffordResNet`](super::CliffordResNet) without an algebra.
#[derive(Debug, Module, DeepClone)]
pub struct PlainResNet {
    conv_in1: Conv,
    conv_in2: Conv,
    layers: Vec<Block>,
    conv_out1: Conv,
    conv_out2: Conv,
    #[module(skip)]
    components: usize,
}

impl PlainResNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0 or an even number of taps, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &PlainResNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = placement.into();
        let &PlainResNetConfig { axes, components, inputs, outputs, hidden, taps, blocks, norm } = config;
        if !(1..=3).contains(&axes) || taps.is_multiple_of(2) || components * inputs * outputs * hidden == 0 {
            return refuse("PlainResNet", "config", config, "1 to 3 axes, odd taps, and no size of 0");
        }
        let mut conv = |inputs: usize, outputs: usize, taps: usize| -> Result<Conv> {
            let limit = 1.0 / ((inputs * taps.pow(axes as u32)) as f64).sqrt();
            let shape = [&[outputs, inputs], &vec![taps; axes][..]].concat();
            Ok(Conv {
                weight: placement.uniform(shape, (-limit, limit), rng)?,
                bias: placement.uniform([outputs], (-limit, limit), rng)?,
            })
        };
        let normed = || -> Result<Option<Norm>> {
            let new = || {
                let (weight, bias) = (placement.filled([hidden], 1.0)?, placement.filled([hidden], 0.0)?);
                Ok(Norm { weight, bias })
            };
            norm.then(new).transpose()
        };
        let (conv_in1, conv_in2) = (conv(components * inputs, hidden, 1)?, conv(hidden, hidden, 1)?);
        let mut layers = Vec::with_capacity(blocks);
        for _ in 0..blocks {
            let (conv1, conv2) = (conv(hidden, hidden, taps)?, conv(hidden, hidden, taps)?);
            layers.push(Block { conv1, conv2, norm1: normed()?, norm2: normed()? });
        }
        let (conv_out1, conv_out2) = (conv(hidden, hidden, 1)?, conv(hidden, components * outputs, 1)?);
        Ok(Self { conv_in1, conv_in2, layers, conv_out1, conv_out2, components })
    }
}

impl Layer for PlainResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("PlainResNet::forward", x, || {
            let shape = x.shape().to_vec();
            let rank = shape.len();
            if rank < 4 || shape[0] != self.components {
                return refuse(
                    "PlainResNet",
                    "x",
                    x.shape(),
                    format!("[{}, batch, *space, channels]", self.components),
                );
            }
            // [components, batch, *space, times] → [1, batch, *space, components·times], and back.
            let order: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
            let channels = self.components * shape[rank - 1];
            let x = x.permute(&order)?.reshape([&[1], &shape[1..rank - 1], &[channels]].concat())?;
            let x = self.conv_in1.forward(&x)?.gelu()?;
            let x = self.conv_in2.forward(&x)?.gelu()?;
            let x = self.layers.iter().try_fold(x, |x, layer| layer.forward(&x))?;
            let y = self.conv_out2.forward(&self.conv_out1.forward(&x)?.gelu()?)?;
            let outputs = y.shape()[rank - 1] / self.components;
            let y = y.reshape([&shape[1..rank - 1], &[self.components, outputs]].concat())?;
            let order: Vec<usize> = [rank - 2].into_iter().chain(0..rank - 2).chain([rank - 1]).collect();
            Ok(y.permute(&order)?)
        })
    }
}
