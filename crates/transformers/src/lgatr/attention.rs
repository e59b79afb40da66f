//! Self-attention by inner products of multivectors and of scalars.

use super::{AttentionConfig, EPSILON};
use crate::{
    Channels, Space, TokenBatch,
    layers::{
        EquiLinear, FeaturePlanes, GradeDropout, Initialization, Projection, ProjectionSize, attend, merge,
    },
};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Module, Parameter, Placement, Result, Visitor, in_layer};

/// Attention between the tokens of a set: logits are the inner products of multivectors and of scalars of queries and keys, each head's
/// features normalised.
///
/// Parameters: those of `qkv_module` and `out_linear`, and `head_scale` `[heads]` if there is one.
#[derive(Debug, DeepClone)]
pub struct SelfAttention {
    qkv_module: Projection,
    output: Output,
}

impl Module for SelfAttention {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("qkv_module", &self.qkv_module);
        self.output.visit(visitor);
    }
}

impl SelfAttention {
    /// For features of `channels`, in and out. Queries and keys are made of `additional` channels too.
    ///
    /// # Errors
    /// No heads or no channels; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (channels, additional): (Channels, Channels),
        config: &AttentionConfig,
        space: &Space,
        dropout: Option<GradeDropout>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, of_head, heads) = (&placement.into(), config.of_head(channels)?, config.num_heads);
        let AttentionConfig { multi_query, .. } = *config;
        let size = ProjectionSize { channels, additional, of_head, heads, multi_query, bias: false };
        let qkv_module = Projection::init(size, space, placement, rng)?;
        let output = Output::init((of_head, channels), config, space, dropout, placement, rng)?;
        Ok(Self { qkv_module, output })
    }

    /// The attention output for each token of `x`; `additional` are the further channels of queries and keys, if there are some.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(
        &self,
        x: &FeaturePlanes,
        additional: Option<&FeaturePlanes>,
        tokens: &TokenBatch,
    ) -> Result<FeaturePlanes> {
        in_layer("SelfAttention::forward", || {
            let heads = self.qkv_module.forward(x, additional, tokens, (Some(EPSILON), true))?;
            self.output.forward(&heads, tokens)
        })
    }
}

/// From the heads of an attention to features.
#[derive(Debug, DeepClone)]
pub(super) struct Output {
    space: Space,
    of_head: Channels,
    heads: usize,
    head_scale: Option<Parameter>,
    out_linear: EquiLinear,
    dropout: Option<GradeDropout>,
}

impl Output {
    /// Features of `channels` from heads of an attention with these settings, of `of_head` channels each.
    pub fn init<R: rand::Rng + ?Sized>(
        (of_head, channels): (Channels, Channels),
        config: &AttentionConfig,
        space: &Space,
        dropout: Option<GradeDropout>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let heads = config.num_heads;
        let out_linear = EquiLinear::new(of_head.times(heads), channels, space)
            .initialization(Initialization::Small)
            .init(placement, rng)?;
        let head_scale = config.head_scale.then(|| placement.filled([heads], 1.0)).transpose()?;
        Ok(Self { space: space.clone(), of_head, heads, head_scale, out_linear, dropout })
    }

    /// The features of queries, keys and values; `keys` are the tokens of the keys.
    pub fn forward(&self, [q, k, v]: &[Tensor; 3], keys: &TokenBatch) -> Result<FeaturePlanes> {
        let mut h = attend([q, k, v], keys)?;
        if let Some(scale) = &self.head_scale {
            h = h.mul(&scale.tensor().reshape([1, self.heads, 1, 1])?)?;
        }
        let y = self.out_linear.forward(&merge(&self.space, &h, self.of_head)?)?;
        match &self.dropout {
            Some(dropout) => dropout.forward(&y),
            None => Ok(y),
        }
    }

    pub fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(scale) = &self.head_scale {
            visitor.parameter("head_scale", scale);
        }
        visitor.module("out_linear", &self.out_linear);
    }
}
