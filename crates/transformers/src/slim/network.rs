//! The network.

use super::{
    SlimDropout, SlimLinear, SlimMlp, SlimRmsNorm, SlimSelfAttention, VectorChannels, VectorStreams,
    linear::Options, mlp::MlpSize,
};
use crate::{TokenBatch, layers::Nonlinearity};
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, data::at_least_one, in_layer};
use serde::{Deserialize, Serialize};

/// Settings of an [`LGATrSlim`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LGATrSlimConfig {
    /// Blocks.
    pub num_blocks: usize,
    /// Vectors of the input.
    pub in_v_channels: usize,
    /// Vectors of the output, 0 for none.
    pub out_v_channels: usize,
    /// Vectors within.
    pub hidden_v_channels: usize,
    /// Scalars of the input, at least 1.
    pub in_s_channels: usize,
    /// Scalars of the output, 0 for none.
    pub out_s_channels: usize,
    /// Scalars within.
    pub hidden_s_channels: usize,
    /// Heads.
    pub num_heads: usize,
    /// The function of scalars.
    #[serde(default = "gelu")]
    pub nonlinearity: Nonlinearity,
    /// The function of products of vectors; that of scalars if `None`.
    #[serde(default = "sigmoid")]
    pub nonlinearity_v: Option<Nonlinearity>,
    /// Hidden channels of the layers behind attention over those of the block.
    #[serde(default = "two")]
    pub mlp_ratio: usize,
    /// Channels of all heads together over those of the block. A head has at least one vector and four scalars; what does not divide is
    /// left out.
    #[serde(default = "one")]
    pub attn_ratio: usize,
    /// Layers behind attention, at least 2.
    #[serde(default = "two")]
    pub num_layers_mlp: usize,
    /// Probability of dropout in training; `None` has no layers of dropout.
    #[serde(default)]
    pub dropout_prob: Option<f64>,
    /// Whether the norms have gains.
    #[serde(default = "yes")]
    pub norm_elementwise_affine: bool,
}

pub(super) const fn gelu() -> Nonlinearity {
    Nonlinearity::Gelu
}

// The default of a setting that may be absent.
#[expect(clippy::unnecessary_wraps)]
pub(super) const fn sigmoid() -> Option<Nonlinearity> {
    Some(Nonlinearity::Sigmoid)
}

pub(super) const fn two() -> usize {
    2
}

pub(super) const fn one() -> usize {
    1
}

pub(super) const fn yes() -> bool {
    true
}

impl LGATrSlimConfig {
    /// Settings of a model from `inputs` over `hidden`, in so many heads, to `outputs`, the others as published.
    pub fn new(num_blocks: usize, [inputs, hidden, outputs]: [VectorChannels; 3], num_heads: usize) -> Self {
        Self {
            num_blocks,
            in_v_channels: inputs.vectors,
            out_v_channels: outputs.vectors,
            hidden_v_channels: hidden.vectors,
            in_s_channels: inputs.scalars,
            out_s_channels: outputs.scalars,
            hidden_s_channels: hidden.scalars,
            num_heads,
            nonlinearity: gelu(),
            nonlinearity_v: sigmoid(),
            mlp_ratio: two(),
            attn_ratio: one(),
            num_layers_mlp: two(),
            dropout_prob: None,
            norm_elementwise_affine: true,
        }
    }
}

impl LGATrSlimConfig {
    /// Channels of the input, within, and of the output.
    pub(super) const fn channels(&self) -> [VectorChannels; 3] {
        [
            VectorChannels::new(self.in_v_channels, self.in_s_channels),
            VectorChannels::new(self.hidden_v_channels, self.hidden_s_channels),
            VectorChannels::new(self.out_v_channels, self.out_s_channels),
        ]
    }

    /// The layers behind attention of the block of this number: what only feeds outputs that are not there is not trained.
    pub(super) fn mlp(&self, block: usize) -> MlpSize {
        let feeds = |count: usize| block + 1 < self.num_blocks || count > 0;
        let of_products = self.nonlinearity_v.unwrap_or(self.nonlinearity);
        MlpSize {
            ratio: self.mlp_ratio,
            layers: self.num_layers_mlp,
            nonlinearities: [of_products, self.nonlinearity],
            is_trained: [feeds(self.out_v_channels), feeds(self.out_s_channels)],
        }
    }

    /// Layers of dropout, one after the other.
    pub(super) fn dropouts(
        &self,
        seeds: &mut dyn Iterator<Item = u64>,
    ) -> impl FnMut() -> Result<Option<SlimDropout>> {
        let p = self.dropout_prob;
        move || p.map(|p| SlimDropout::new(p, seeds.next().unwrap_or_default())).transpose()
    }

    /// Refuses sizes of 0.
    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        let sizes = [
            ("in_v_channels", self.in_v_channels),
            ("hidden_v_channels", self.hidden_v_channels),
            ("in_s_channels", self.in_s_channels),
            ("hidden_s_channels", self.hidden_s_channels),
        ];
        at_least_one(operation, &sizes)
    }
}

/// x + attention(norm1(x)), then x + mlp(norm2(x)).
///
/// Parameters: those of `norm1`, `norm2`, `attention` and `mlp`.
#[derive(Debug, Module, DeepClone)]
pub struct SlimBlock {
    norm1: SlimRmsNorm,
    norm2: SlimRmsNorm,
    attention: SlimSelfAttention,
    mlp: SlimMlp,
}

impl SlimBlock {
    /// The block of this number.
    fn init<R: rand::Rng + ?Sized>(
        config: &LGATrSlimConfig,
        number: usize,
        seeds: &mut dyn Iterator<Item = u64>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let [_, channels, _] = config.channels();
        let (affine, mlp) = (config.norm_elementwise_affine, config.mlp(number));
        let mut dropout = config.dropouts(seeds);
        let heads = (config.num_heads, config.attn_ratio);
        Ok(Self {
            norm1: SlimRmsNorm::init(channels, affine, [true; 2], placement)?,
            norm2: SlimRmsNorm::init(channels, affine, mlp.is_trained, placement)?,
            attention: SlimSelfAttention::init(channels, heads, dropout()?, placement, rng)?,
            mlp: SlimMlp::init(channels, mlp, &mut dropout, placement, rng)?,
        })
    }

    /// New streams.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &VectorStreams, tokens: &TokenBatch) -> Result<VectorStreams> {
        in_layer("SlimBlock::forward", || {
            let x = x.add(&self.attention.forward(&self.norm1.forward(x)?, tokens)?)?;
            x.add(&self.mlp.forward(&self.norm2.forward(&x)?)?)
        })
    }
}

/// L-GATr-slim: a linear map, blocks, and a linear map. It is equivariant under Lorentz transformations, and under permutations of the tokens
/// of a set. What only feeds outputs that are not there is not trained, as published.
#[derive(Debug, Module, DeepClone)]
pub struct LGATrSlim {
    linear_in: SlimLinear,
    blocks: Vec<SlimBlock>,
    linear_out: SlimLinear,
}

impl LGATrSlim {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, a probability outside 0 ≤ p < 1; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &LGATrSlimConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        config.check("LGATrSlim")?;
        let (placement, [inputs, hidden, outputs]) = (&placement.into(), config.channels());
        let mut seeds = 0u64..;
        let mut block =
            |number: usize, rng: &mut R| SlimBlock::init(config, number, &mut seeds, placement, rng);
        Ok(Self {
            linear_in: SlimLinear::init((inputs, hidden), Options::DEFAULT, placement, rng)?,
            blocks: (0..config.num_blocks).map(|number| block(number, rng)).collect::<Result<_>>()?,
            linear_out: SlimLinear::init((hidden, outputs), Options::DEFAULT, placement, rng)?,
        })
    }

    /// Maps streams with the input's channels to streams with the output's.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &VectorStreams, tokens: &TokenBatch) -> Result<VectorStreams> {
        in_layer("LGATrSlim::forward", || {
            require_tokens("LGATrSlim", x, tokens)?;
            let mut hidden = self.linear_in.forward(x)?;
            for block in &self.blocks {
                hidden = block.forward(&hidden, tokens)?;
            }
            self.linear_out.forward(&hidden)
        })
    }
}

/// Refuses another number of tokens than that of the sets.
pub(super) fn require_tokens(operation: &'static str, x: &VectorStreams, tokens: &TokenBatch) -> Result<()> {
    let (batch, items) = tokens.sizes();
    if x.tokens() == batch * items {
        return Ok(());
    }
    Err(Error::Argument {
        operation,
        argument: "x",
        actual: format!("{} tokens", x.tokens()),
        expected: format!("{batch} sets of {items}"),
    })
}
