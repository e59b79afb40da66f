//! The U-Net of rotated vectors.

use super::{
    G3Conv, G3Gate, G3GroupNorm,
    g3::{BlockNorm, G3Block, normalized},
    refuse,
};
use crate::{
    DeepClone, Module, Placement, Result, Visitor,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{Tensor, concat};
use serde::{Deserialize, Serialize};

/// Sizes of a [`G3UNet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct G3UNetConfig {
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Channels of the encoder, before the first multiplier.
    pub hidden: usize,
    /// Factors between the channels of successive grids, from the finest on.
    pub multipliers: Vec<usize>,
    /// Blocks on each grid, on the way down; one more on the way up.
    pub blocks: usize,
    /// Groups of the norms; `None` for no normalisation.
    pub norm: Option<usize>,
    /// Whether norms precede gates.
    pub norm_first: bool,
}

impl Default for G3UNetConfig {
    fn default() -> Self {
        let multipliers = vec![1, 2, 2, 2];
        Self { inputs: 4, outputs: 1, hidden: 64, multipliers, blocks: 2, norm: None, norm_first: true }
    }
}

/// A step of the U-Net: a block, or a change of resolution.
#[derive(Debug, DeepClone)]
enum Step {
    /// The name of the block within the step, and the block.
    Block(&'static str, Box<G3Block>),
    /// Down- or upsampling by a factor of 2.
    Scale(G3Conv),
}

impl Module for Step {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Block(name, block) => visitor.module(name, block.as_ref()),
            Self::Scale(conv) => visitor.module("conv", conv),
        }
    }
}

#[derive(Debug, Module, DeepClone)]
struct Middle {
    res1: G3Block,
    res2: G3Block,
}

/// The U-Net of rotated vectors (Ruhe et al. 2023, arXiv:2302.06594): `[3, batch, height, width, inputs]` to `[…, outputs]`, with extents
/// that are multiples of 2^(grids − 1).
#[derive(Debug, Module, DeepClone)]
pub struct G3UNet {
    conv1: G3Conv,
    down: Vec<Step>,
    middle: Middle,
    up: Vec<Step>,
    activation: G3Gate,
    norm: Option<G3GroupNorm>,
    conv2: G3Conv,
}

impl G3UNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// No grids, multipliers of 0, groups that do not divide the channels, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &G3UNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "G3UNet",
            &[("inputs", config.inputs), ("outputs", config.outputs), ("hidden", config.hidden)],
        )?;
        let placement = placement.into();
        let (grids, multipliers) = (config.multipliers.len(), &config.multipliers);
        if grids == 0 || multipliers.contains(&0) {
            return refuse("G3UNet", "multipliers", multipliers, "one grid at least, and channels on each");
        }
        let norm = BlockNorm { groups: config.norm, before: config.norm_first };
        // In the middle and in the last block of each grid on the way up, the published code normalises in one group.
        let single = BlockNorm { groups: config.norm.map(|_| 1), ..norm };
        let block = |name, inputs: usize, outputs: usize, norm: BlockNorm, rng: &mut R| -> Result<Step> {
            Ok(Step::Block(name, Box::new(G3Block::init(inputs, outputs, norm, &placement, rng)?)))
        };
        let (mut down, mut channels) = (Vec::new(), config.hidden);
        for (grid, multiplier) in multipliers.iter().enumerate() {
            let outputs = channels * multiplier;
            for _ in 0..config.blocks {
                down.push(block("block", channels, outputs, norm, rng)?);
                channels = outputs;
            }
            channels = outputs;
            if grid + 1 < grids {
                down.push(Step::Scale(G3Conv::new(channels, channels, 3).stride(2).init(&placement, rng)?));
            }
        }
        let middle = Middle {
            res1: G3Block::init(channels, channels, single, &placement, rng)?,
            res2: G3Block::init(channels, channels, single, &placement, rng)?,
        };
        let mut up = Vec::new();
        for (grid, multiplier) in multipliers.iter().enumerate().rev() {
            for _ in 0..config.blocks {
                up.push(block("res", 2 * channels, channels, norm, rng)?);
            }
            // The last skip connection of this grid is the output of the previous step on the way down, which has fewer channels.
            let outputs = channels / multiplier;
            up.push(block("res", channels + outputs, outputs, single, rng)?);
            channels = outputs;
            if grid > 0 {
                let scale = G3Conv::new(channels, channels, 4).stride(2).padding(1).transposed();
                up.push(Step::Scale(scale.init(&placement, rng)?));
            }
        }
        let last = config.norm.map(|groups| G3GroupNorm::init(3, channels, groups, None, &placement));
        Ok(Self {
            conv1: G3Conv::new(config.inputs, config.hidden, 3).init(&placement, rng)?,
            down,
            middle,
            up,
            activation: G3Gate::init(channels, &placement, rng)?,
            norm: last.transpose()?,
            conv2: G3Conv::new(channels, config.outputs, 3).init(&placement, rng)?,
        })
    }
}

impl Layer for G3UNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("G3UNet::forward", x, || {
            let mut x = self.conv1.forward(x)?;
            let mut passed = vec![x.clone()];
            for step in &self.down {
                x = match step {
                    Step::Block(_, block) => block.forward(&x)?,
                    Step::Scale(conv) => conv.forward(&x)?,
                };
                passed.push(x.clone());
            }
            x = self.middle.res2.forward(&self.middle.res1.forward(&x)?)?;
            for step in &self.up {
                x = match step {
                    Step::Scale(conv) => conv.forward(&x)?,
                    Step::Block(_, block) => {
                        // There is one skip connection for each block on the way up.
                        let joined = match passed.pop() {
                            Some(skip) => concat(&[&x, &skip], 4)?,
                            None => x,
                        };
                        block.forward(&joined)?
                    }
                };
            }
            let x = self.activation.forward(&normalized(self.norm.as_ref(), &x)?)?;
            self.conv2.forward(&x)
        })
    }
}
