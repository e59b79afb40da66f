//! The network with a condition.

use super::{
    LGATrSlimConfig, SlimDropout, SlimLinear, SlimMlp, SlimRmsNorm, SlimSelfAttention, VectorChannels,
    VectorStreams,
    attention::{Heads, SMALL, WITHOUT_BIAS},
    linear::Options,
    network::{gelu, one, require_tokens, sigmoid, two, yes},
};
use crate::{TokenBatch, layers::Nonlinearity};
use gradewise_nn::{DeepClone, Module, Placement, Result, data::at_least_one, in_layer};
use serde::{Deserialize, Serialize};

/// Settings of a [`ConditionalLGATrSlim`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionalLGATrSlimConfig {
    /// Blocks.
    pub num_blocks: usize,
    /// Vectors of the input.
    pub in_v_channels: usize,
    /// Vectors of the condition.
    pub v_channels_cond: usize,
    /// Vectors of the output, 0 for none.
    pub out_v_channels: usize,
    /// Vectors within.
    pub hidden_v_channels: usize,
    /// Scalars of the input, at least 1.
    pub in_s_channels: usize,
    /// Scalars of the condition, at least 1.
    pub s_channels_cond: usize,
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

impl ConditionalLGATrSlimConfig {
    /// The settings that a network without a condition has too.
    fn unconditional(&self) -> LGATrSlimConfig {
        LGATrSlimConfig {
            num_blocks: self.num_blocks,
            in_v_channels: self.in_v_channels,
            out_v_channels: self.out_v_channels,
            hidden_v_channels: self.hidden_v_channels,
            in_s_channels: self.in_s_channels,
            out_s_channels: self.out_s_channels,
            hidden_s_channels: self.hidden_s_channels,
            num_heads: self.num_heads,
            nonlinearity: self.nonlinearity,
            nonlinearity_v: self.nonlinearity_v,
            mlp_ratio: self.mlp_ratio,
            attn_ratio: self.attn_ratio,
            num_layers_mlp: self.num_layers_mlp,
            dropout_prob: self.dropout_prob,
            norm_elementwise_affine: self.norm_elementwise_affine,
        }
    }
}

/// Attention of one set of tokens to another, by the products of [`SlimSelfAttention`].
///
/// Parameters: those of `linear_in_q`, `linear_in_kv` and `linear_out`.
#[derive(Debug, Module, DeepClone)]
pub struct SlimCrossAttention {
    #[module(skip)]
    heads: Heads,
    linear_in_q: SlimLinear,
    linear_in_kv: SlimLinear,
    linear_out: SlimLinear,
    #[module(skip)]
    dropout: Option<SlimDropout>,
}

impl SlimCrossAttention {
    /// For queries of `channels`, which are those of the output, and keys and values of `condition`.
    fn init<R: rand::Rng + ?Sized>(
        (channels, condition): (VectorChannels, VectorChannels),
        sizes: (usize, usize),
        dropout: Option<SlimDropout>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let heads = Heads::new(channels, sizes)?;
        let (of_queries, of_both) = (heads.together(1), heads.together(2));
        Ok(Self {
            linear_in_q: SlimLinear::init((channels, of_queries), WITHOUT_BIAS, placement, rng)?,
            linear_in_kv: SlimLinear::init((condition, of_both), WITHOUT_BIAS, placement, rng)?,
            linear_out: SlimLinear::init((of_queries, channels), SMALL, placement, rng)?,
            heads,
            dropout,
        })
    }

    /// The attention output for each token of `x`, which attends to those of `condition`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(
        &self,
        (x, tokens): (&VectorStreams, &TokenBatch),
        (condition, keys): (&VectorStreams, &TokenBatch),
    ) -> Result<VectorStreams> {
        in_layer("SlimCrossAttention::forward", || {
            let q = self.heads.split(&self.linear_in_q.forward(x)?, tokens, 1, Some(0))?;
            let kv = self.heads.split(&self.linear_in_kv.forward(condition)?, keys, 2, None)?;
            let y = self.linear_out.forward(&self.heads.attend([&q[0], &kv[0], &kv[1]], keys)?)?;
            match &self.dropout {
                Some(dropout) => dropout.forward(&y),
                None => Ok(y),
            }
        })
    }
}

/// x + selfattention(norm1(x)), then x + crossattention(norm2(x), condition), then x + mlp(norm3(x)).
///
/// Parameters: those of the norms, `selfattention`, `crossattention` and `mlp`.
#[derive(Debug, Module, DeepClone)]
pub struct ConditionalSlimBlock {
    norm1: SlimRmsNorm,
    norm2: SlimRmsNorm,
    norm3: SlimRmsNorm,
    selfattention: SlimSelfAttention,
    crossattention: SlimCrossAttention,
    mlp: SlimMlp,
}

impl ConditionalSlimBlock {
    /// The block of this number.
    fn init<R: rand::Rng + ?Sized>(
        config: &ConditionalLGATrSlimConfig,
        number: usize,
        seeds: &mut dyn Iterator<Item = u64>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let network = config.unconditional();
        let [_, channels, _] = network.channels();
        let condition = VectorChannels::new(config.v_channels_cond, config.s_channels_cond);
        let (affine, mlp) = (network.norm_elementwise_affine, network.mlp(number));
        let mut dropout = network.dropouts(seeds);
        let heads = (network.num_heads, network.attn_ratio);
        let norm = |is_trained| SlimRmsNorm::init(channels, affine, is_trained, placement);
        let selfattention = SlimSelfAttention::init(channels, heads, dropout()?, placement, rng)?;
        let both = (channels, condition);
        Ok(Self {
            norm1: norm([true; 2])?,
            norm2: norm([true; 2])?,
            norm3: norm(mlp.is_trained)?,
            selfattention,
            crossattention: SlimCrossAttention::init(both, heads, dropout()?, placement, rng)?,
            mlp: SlimMlp::init(channels, mlp, &mut dropout, placement, rng)?,
        })
    }

    /// New streams of `x`, which attends to itself and to `condition`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        (x, tokens): (&VectorStreams, &TokenBatch),
        condition: (&VectorStreams, &TokenBatch),
    ) -> Result<VectorStreams> {
        in_layer("ConditionalSlimBlock::forward", || {
            let x = x.add(&self.selfattention.forward(&self.norm1.forward(x)?, tokens)?)?;
            let h = self.norm2.forward(&x)?;
            let x = x.add(&self.crossattention.forward((&h, tokens), condition)?)?;
            x.add(&self.mlp.forward(&self.norm3.forward(&x)?)?)
        })
    }
}

/// L-GATr-slim whose blocks attend to the tokens of a condition as well.
#[derive(Debug, Module, DeepClone)]
pub struct ConditionalLGATrSlim {
    linear_in: SlimLinear,
    blocks: Vec<ConditionalSlimBlock>,
    linear_out: SlimLinear,
}

impl ConditionalLGATrSlim {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, a probability outside 0 ≤ p < 1; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &ConditionalLGATrSlimConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        const NAME: &str = "ConditionalLGATrSlim";
        let ConditionalLGATrSlimConfig { v_channels_cond, s_channels_cond, .. } = config;
        let network = config.unconditional();
        network.check(NAME)?;
        at_least_one(NAME, &[("v_channels_cond", *v_channels_cond), ("s_channels_cond", *s_channels_cond)])?;
        let (placement, [inputs, hidden, outputs]) = (&placement.into(), network.channels());
        let mut seeds = 0u64..;
        let mut block = |number: usize, rng: &mut R| {
            ConditionalSlimBlock::init(config, number, &mut seeds, placement, rng)
        };
        Ok(Self {
            linear_in: SlimLinear::init((inputs, hidden), Options::DEFAULT, placement, rng)?,
            blocks: (0..network.num_blocks).map(|number| block(number, rng)).collect::<Result<_>>()?,
            linear_out: SlimLinear::init((hidden, outputs), Options::DEFAULT, placement, rng)?,
        })
    }

    /// Maps streams with the input's channels to streams with the output's, beside those of a condition, whose sets are as many.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        (x, tokens): (&VectorStreams, &TokenBatch),
        (condition, keys): (&VectorStreams, &TokenBatch),
    ) -> Result<VectorStreams> {
        in_layer("ConditionalLGATrSlim::forward", || {
            require_tokens("ConditionalLGATrSlim", x, tokens)?;
            require_tokens("ConditionalLGATrSlim", condition, keys)?;
            let mut hidden = self.linear_in.forward(x)?;
            for block in &self.blocks {
                hidden = block.forward((&hidden, tokens), (condition, keys))?;
            }
            self.linear_out.forward(&hidden)
        })
    }
}
