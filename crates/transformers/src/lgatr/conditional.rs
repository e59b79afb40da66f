//! The network with a condition.

use super::{
    AttentionConfig, ConditionalLGATrConfig, EPSILON, GeoMlp, SelfAttention, attention::Output,
    block::dropout,
};
use crate::{
    Channels, Space, Streams, TokenBatch,
    layers::{EquiLayerNorm, EquiLinear, FeaturePlanes, GradeDropout, HeadSplit},
};
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, Visitor, in_layer};

/// Attention of one set of tokens to another, by the inner products of [`SelfAttention`].
///
/// Parameters: those of `q_linear`, `kv_linear` and `out_linear`, and `head_scale` `[heads]` if there is one.
#[derive(Debug, DeepClone)]
pub struct CrossAttention {
    space: Space,
    query: HeadSplit,
    key: HeadSplit,
    q_linear: EquiLinear,
    kv_linear: EquiLinear,
    output: Output,
}

impl Module for CrossAttention {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("q_linear", &self.q_linear);
        visitor.module("kv_linear", &self.kv_linear);
        self.output.visit(visitor);
    }
}

impl CrossAttention {
    /// For queries of `channels`, which are those of the output, and keys and values of `condition`.
    ///
    /// # Errors
    /// No heads or no channels; scalars of the condition without scalars of the queries; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (channels, condition): (Channels, Channels),
        config: &AttentionConfig,
        space: &Space,
        dropout: Option<GradeDropout>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, of_head, heads) = (&placement.into(), config.of_head(channels)?, config.num_heads);
        if channels.scalars == 0 && condition.scalars > 0 {
            return Err(Error::Argument {
                operation: "CrossAttention",
                argument: "condition.scalars",
                actual: condition.scalars.to_string(),
                expected: "0 beside queries without scalars, which nothing would weigh them with".to_owned(),
            });
        }
        let shared = if config.multi_query { 1 } else { heads };
        let mut linear = |inputs: Channels, count: usize| {
            EquiLinear::new(inputs, of_head.times(count), space).bias(false).init(placement, rng)
        };
        let (q_linear, kv_linear) = (linear(channels, heads)?, linear(condition, 2 * shared)?);
        let query = HeadSplit { of_head, heads, groups: 1, epsilon: Some(EPSILON), query: Some(0) };
        Ok(Self {
            space: space.clone(),
            query,
            key: HeadSplit { heads: shared, groups: 2, query: None, ..query },
            q_linear,
            kv_linear,
            output: Output::init((of_head, channels), config, space, dropout, placement, rng)?,
        })
    }

    /// The attention output for each token of `x`, which attends to those of `condition`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(
        &self,
        (x, tokens): (&FeaturePlanes, &TokenBatch),
        (condition, keys): (&FeaturePlanes, &TokenBatch),
    ) -> Result<FeaturePlanes> {
        in_layer("CrossAttention::forward", || {
            let q = self.query.forward(&self.space, &self.q_linear.forward(x)?, tokens)?;
            let kv = self.key.forward(&self.space, &self.kv_linear.forward(condition)?, keys)?;
            self.output.forward(&[q[0].clone(), kv[0].clone(), kv[1].clone()], keys)
        })
    }
}

/// x + attention(norm1(x)), then x + crossattention(norm2(x), norm_cond(condition)), then x + mlp(norm3(x)).
///
/// Parameters: those of the norms, `attention`, `crossattention` and `mlp`.
#[derive(Debug, Module, DeepClone)]
pub struct ConditionalLGATrBlock {
    norm1: EquiLayerNorm,
    norm2: EquiLayerNorm,
    norm3: EquiLayerNorm,
    norm_cond: EquiLayerNorm,
    attention: SelfAttention,
    crossattention: CrossAttention,
    mlp: GeoMlp,
}

impl ConditionalLGATrBlock {
    /// Draws the parameters of a block of the network with these settings; `seeds` determine its masks of dropout.
    ///
    /// # Errors
    /// As [`SelfAttention::init`], [`CrossAttention::init`] and [`GeoMlp::init`]; a probability outside 0 ≤ p < 1.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &ConditionalLGATrConfig,
        space: &Space,
        seeds: &mut dyn Iterator<Item = u64>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let channels = Channels::new(config.hidden_mv_channels, config.hidden_s_channels);
        let norm = |channels: Channels| {
            EquiLayerNorm::new(channels, space)
                .epsilon(EPSILON)
                .elementwise_affine(config.norm_elementwise_affine)
                .init(placement)
        };
        let mut dropout = || dropout(config.dropout_prob, space, seeds);
        let both = (channels, Channels::new(0, 0));
        let attention = SelfAttention::init(both, &config.attention, space, dropout()?, placement, rng)?;
        let both = (channels, config.condition());
        let crossattention =
            CrossAttention::init(both, &config.crossattention, space, dropout()?, placement, rng)?;
        let mlp =
            GeoMlp::init(channels, (&config.mlp, &config.primitives), space, &mut dropout, placement, rng)?;
        Ok(Self {
            norm1: norm(channels)?,
            norm2: norm(channels)?,
            norm3: norm(channels)?,
            norm_cond: norm(config.condition())?,
            attention,
            crossattention,
            mlp,
        })
    }

    /// New features of `x`, which attends to itself and to `condition`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        (x, tokens): (&FeaturePlanes, &TokenBatch),
        (condition, keys): (&FeaturePlanes, &TokenBatch),
    ) -> Result<FeaturePlanes> {
        in_layer("ConditionalLGATrBlock::forward", || {
            let x = x.add(&self.attention.forward(&self.norm1.forward(x)?, None, tokens)?)?;
            let (h, condition) = (self.norm2.forward(&x)?, self.norm_cond.forward(condition)?);
            let x = x.add(&self.crossattention.forward((&h, tokens), (&condition, keys))?)?;
            x.add(&self.mlp.forward(&self.norm3.forward(&x)?)?)
        })
    }
}

/// L-GATr whose blocks attend to the tokens of a condition as well, which another network may have prepared.
#[derive(Debug, Module, DeepClone)]
pub struct ConditionalLGATr {
    #[module(skip)]
    space: Space,
    linear_in: EquiLinear,
    blocks: Vec<ConditionalLGATrBlock>,
    linear_out: EquiLinear,
}

impl ConditionalLGATr {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, products without hidden scalars, scalars of the condition without hidden ones, a probability outside 0 ≤ p < 1; a dtype
    /// the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &ConditionalLGATrConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, space) = (&placement.into(), config.primitives.space()?);
        let [inputs, hidden, outputs] = config.unconditional().channels();
        let mut seeds = 0u64..;
        let mut block = |rng: &mut R| ConditionalLGATrBlock::init(config, &space, &mut seeds, placement, rng);
        Ok(Self {
            linear_in: EquiLinear::new(inputs, hidden, &space).init(placement, rng)?,
            blocks: (0..config.num_blocks).map(|_| block(rng)).collect::<Result<_>>()?,
            linear_out: EquiLinear::new(hidden, outputs, &space).init(placement, rng)?,
            space,
        })
    }

    /// Maps streams with the input's channels to streams with the output's, beside those of a condition, whose sets are as many.
    ///
    /// # Errors
    /// Blades, channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        (x, tokens): (&Streams, &TokenBatch),
        (condition, keys): (&Streams, &TokenBatch),
    ) -> Result<Streams> {
        in_layer("ConditionalLGATr::forward", || {
            tokens.check(x)?;
            keys.check(condition)?;
            let condition = FeaturePlanes::new(&self.space, condition)?;
            let mut hidden = self.linear_in.forward(&FeaturePlanes::new(&self.space, x)?)?;
            for block in &self.blocks {
                hidden = block.forward((&hidden, tokens), (&condition, keys))?;
            }
            self.linear_out.forward(&hidden)?.streams(&self.space)
        })
    }
}
