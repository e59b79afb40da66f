//! Networks for fluids and electromagnetic fields: an encoder, residual or Fourier blocks, a decoder.

use super::{CliffordConv, CliffordGroupNorm, CliffordSpectralConv, FieldBias, SpectralOptions, refuse};
use crate::{
    DeepClone, Module, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, Padding},
};
use gradewise_core::OrderedMetric;
use serde::{Deserialize, Serialize};

/// The kind of blocks of a [`FieldNet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldBlock {
    /// Two convolutions of three taps with a shortcut: a Clifford ResNet.
    #[default]
    Residual,
    /// A Fourier layer beside a convolution of one tap: a Clifford Fourier neural operator.
    Fourier,
}

/// Sizes of a [`FieldNet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldNetConfig {
    /// Squares of the generators, one for each axis of space.
    pub metric: Vec<i8>,
    /// The blades that the data have: scalar and vector (0,1,2) of a fluid, vector and bivector (1…6) of an electromagnetic field.
    pub blades: Vec<usize>,
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Hidden channels.
    pub hidden: usize,
    /// The kind of blocks.
    pub block: FieldBlock,
    /// Blocks in each stage.
    pub blocks: Vec<usize>,
    /// Frequencies kept along each axis, for Fourier blocks.
    pub modes: Vec<usize>,
    /// Whether the convolutions are rotational; needs the metric (−1,−1).
    pub rotation: bool,
    /// The number of adjacent channels that blocks normalise together; `None` for no normalisation.
    pub norm: Option<usize>,
    /// Zeros added at the end of each axis between encoder and decoder, for fields that are not periodic.
    pub padding: usize,
    /// Whether to follow the published implementation in all details, so that its weights load: pairing and side of Fourier layers,
    /// whitening and bias order of norms. Otherwise, Fourier layers commute with shifts, and norms whiten.
    pub reference: bool,
}

impl Default for FieldNetConfig {
    fn default() -> Self {
        Self {
            metric: vec![1, 1],
            blades: vec![0, 1, 2],
            inputs: 4,
            outputs: 1,
            hidden: 64,
            block: FieldBlock::Residual,
            blocks: vec![2; 4],
            modes: vec![16, 16],
            rotation: false,
            norm: None,
            padding: 9,
            reference: false,
        }
    }
}

/// A block, whose parameters have the published names.
#[derive(Debug, DeepClone)]
enum Block {
    Residual { conv1: CliffordConv, conv2: CliffordConv, norms: Option<Box<[CliffordGroupNorm; 2]>> },
    Fourier { fourier: CliffordSpectralConv, conv: CliffordConv, norm: Option<CliffordGroupNorm> },
}

impl Module for Block {
    fn visit(&self, visitor: &mut crate::Visitor<'_>) {
        match self {
            Self::Residual { conv1, conv2, norms } => {
                visitor.module("conv1", conv1);
                visitor.module("conv2", conv2);
                if let Some([first, second]) = norms.as_deref() {
                    visitor.module("norm1", first);
                    visitor.module("norm2", second);
                }
            }
            Self::Fourier { fourier, conv, norm } => {
                visitor.module("fourier", fourier);
                visitor.module("conv", conv);
                if let Some(norm) = norm {
                    visitor.module("norm", norm);
                }
            }
        }
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let normalized =
            |norm: Option<&CliffordGroupNorm>, x: &Tensor| norm.map_or(Ok(x.clone()), |norm| norm.forward(x));
        match self {
            Self::Residual { conv1, conv2, norms } => {
                let [first, second] = [0, 1].map(|at| norms.as_ref().map(|norms| &norms[at]));
                let y = conv1.forward(&normalized(first, x)?.gelu()?)?;
                let y = conv2.forward(&normalized(second, &y)?.gelu()?)?;
                Ok(y.add(x)?)
            }
            Self::Fourier { fourier, conv, norm } => {
                let y = fourier.forward(x)?.add(&conv.forward(x)?)?;
                Ok(normalized(norm.as_ref(), &y)?.gelu()?)
            }
        }
    }
}

/// A stage of blocks. Parameters are named by stage and block: `layers.1.0.conv1.…`.
#[derive(Debug, DeepClone)]
struct Stage(Vec<Block>);

impl Module for Stage {
    fn visit(&self, visitor: &mut crate::Visitor<'_>) {
        for (index, block) in self.0.iter().enumerate() {
            visitor.module(index, block);
        }
    }
}

/// The Clifford ResNet and the Clifford Fourier neural operator of Brandstetter et al. 2022 (arXiv:2209.04934), for fluids in the plane and
/// electromagnetic fields in space: `[blades of the data, batch, *space, inputs]` to `[…, outputs]`.
#[derive(Debug, Module, DeepClone)]
pub struct FieldNet {
    encoder: CliffordConv,
    layers: Vec<Stage>,
    decoder: CliffordConv,
    #[module(skip)]
    padding: usize,
}

impl FieldNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Squares that are not a metric, blades that the metric does not have, Fourier blocks outside of 2 and 3 dimensions, rotations in
    /// another metric than (−1,−1), a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &FieldNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "FieldNet",
            &[("inputs", config.inputs), ("outputs", config.outputs), ("hidden", config.hidden)],
        )?;
        let (placement, metric) = (placement.into(), OrderedMetric::new(&config.metric)?);
        let (axes, hidden) = (metric.dimension(), config.hidden);
        if config.block == FieldBlock::Fourier && config.modes.len() != axes {
            return refuse("FieldNet", "modes", &config.modes, format!("one number for each of {axes} axes"));
        }
        let conv = |inputs: usize, outputs: usize, taps: usize| {
            CliffordConv::new(&metric, inputs, outputs, &vec![taps; axes]).rotation(config.rotation)
        };
        let encoder = conv(config.inputs, hidden, 1).input_blades(&config.blades).init(&placement, rng)?;
        let decoder = conv(hidden, config.outputs, 1).output_blades(&config.blades).bias(FieldBias::None);
        let decoder = decoder.init(&placement, rng)?;
        let norm = || -> Result<Option<CliffordGroupNorm>> {
            let Some(channels) = config.norm else { return Ok(None) };
            let norm = CliffordGroupNorm::new(metric.blade_count(), hidden, channels);
            Ok(Some(if config.reference { norm.reference() } else { norm }.init(&placement)?))
        };
        let mut block = || -> Result<Block> {
            Ok(match config.block {
                FieldBlock::Residual => Block::Residual {
                    conv1: conv(hidden, hidden, 3).init(&placement, rng)?,
                    conv2: conv(hidden, hidden, 3).init(&placement, rng)?,
                    norms: norm()?.zip(norm()?).map(|(first, second)| Box::new([first, second])),
                },
                FieldBlock::Fourier => {
                    let options = match config.reference {
                        // Released weights in three dimensions need the reference octant.
                        true => SpectralOptions {
                            octant_bug: axes == 3,
                            ..SpectralOptions::reference(&config.modes)
                        },
                        false => SpectralOptions::new(&config.modes),
                    };
                    let fourier =
                        CliffordSpectralConv::new(&metric, hidden, hidden, &config.modes).options(options);
                    Block::Fourier {
                        fourier: fourier.init(&placement, rng)?,
                        conv: conv(hidden, hidden, 1).init(&placement, rng)?,
                        norm: norm()?,
                    }
                }
            })
        };
        let mut layers = Vec::with_capacity(config.blocks.len());
        for &count in &config.blocks {
            layers.push(Stage((0..count).map(|_| block()).collect::<Result<_>>()?));
        }
        Ok(Self { encoder, layers, decoder, padding: config.padding })
    }
}

impl Layer for FieldNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("FieldNet::forward", x, || {
            let rank = x.shape().rank();
            let mut x = self.encoder.forward(&x.gelu()?)?;
            let axes = 2..rank.saturating_sub(1);
            if self.padding > 0 {
                let ends: Vec<[usize; 2]> = axes.clone().map(|_| [0, self.padding]).collect();
                x = fields::pad(&x, &ends, Padding::Zeros)?;
            }
            x = self.layers.iter().flat_map(|stage| &stage.0).try_fold(x, |x, block| block.forward(&x))?;
            for axis in axes {
                let size = x.shape()[axis];
                x = x.slice(axis, 0..size - self.padding)?;
            }
            self.decoder.forward(&x)
        })
    }
}
