//! Settings, under their published names.

use crate::{Channels, Space, layers::Nonlinearity};
use gradewise_core::Signature;
use gradewise_nn::{Result, data::at_least_one};
use serde::{Deserialize, Serialize};

/// The group a model is equivariant under, and its products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrimitivesConfig {
    /// Whether the model is equivariant only under Lorentz transformations that keep orientation and the direction of time. Linear maps then
    /// join each grade to its dual: ten coefficients instead of five.
    pub subgroup: bool,
    /// Whether products of multivectors keep their bivectors.
    pub bivector: bool,
    /// Whether there are products of multivectors; otherwise gates and linear maps take their place.
    pub geometric_product: bool,
}

impl Default for PrimitivesConfig {
    fn default() -> Self {
        Self { subgroup: true, bivector: true, geometric_product: true }
    }
}

impl PrimitivesConfig {
    /// Space-time under the group.
    ///
    /// # Errors
    /// None that occurs: the algebra has four generators.
    pub fn space(&self) -> Result<Space> {
        if self.subgroup { Space::oriented(Signature::STA) } else { Space::new(Signature::STA) }
    }
}

/// Heads of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// Heads.
    pub num_heads: usize,
    /// Whether all heads share keys and values.
    pub multi_query: bool,
    /// Channels of all heads together over those of the input. A head has at least one multivector and four scalars; what does not divide
    /// is left out.
    pub attn_ratio: usize,
    /// Whether the output of each head is multiplied by a parameter.
    pub head_scale: bool,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self { num_heads: 8, multi_query: false, attn_ratio: 1, head_scale: false }
    }
}

impl AttentionConfig {
    /// Channels of a head, for an input of these channels.
    ///
    /// # Errors
    /// No heads, or a ratio of 0.
    pub fn of_head(&self, inputs: Channels) -> Result<Channels> {
        let sizes = [("num_heads", self.num_heads), ("attn_ratio", self.attn_ratio)];
        at_least_one("AttentionConfig", &sizes)?;
        let share = |channels: usize, least: usize| (self.attn_ratio * channels / self.num_heads).max(least);
        let scalars = if inputs.scalars == 0 { 0 } else { share(inputs.scalars, 4) };
        Ok(Channels::new(share(inputs.multivectors, 1), scalars))
    }
}

/// The layers behind attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MlpConfig {
    /// The gate.
    pub nonlinearity: Nonlinearity,
    /// Hidden channels over those of the input.
    pub mlp_ratio: usize,
    /// Layers.
    pub num_layers_mlp: usize,
}

impl Default for MlpConfig {
    fn default() -> Self {
        Self { nonlinearity: Nonlinearity::Gelu, mlp_ratio: 4, num_layers_mlp: 2 }
    }
}

/// Settings of an [`LGATr`](super::LGATr).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LGATrConfig {
    /// Blocks.
    pub num_blocks: usize,
    /// Multivectors of the input.
    pub in_mv_channels: usize,
    /// Multivectors of the output.
    pub out_mv_channels: usize,
    /// Multivectors within.
    pub hidden_mv_channels: usize,
    /// Scalars of the input, 0 for none.
    #[serde(default)]
    pub in_s_channels: usize,
    /// Scalars of the output, 0 for none.
    #[serde(default)]
    pub out_s_channels: usize,
    /// Scalars within; products of multivectors need some.
    #[serde(default)]
    pub hidden_s_channels: usize,
    /// Attention.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// The layers behind attention.
    #[serde(default)]
    pub mlp: MlpConfig,
    /// The group and the products.
    #[serde(default)]
    pub primitives: PrimitivesConfig,
    /// Multivectors of the input, by number, that queries and keys of each block are made of too.
    #[serde(default)]
    pub reinsert_mv_channels: Vec<usize>,
    /// Scalars of the input likewise.
    #[serde(default)]
    pub reinsert_s_channels: Vec<usize>,
    /// Probability of dropout in training; `None` has no layers of dropout.
    #[serde(default)]
    pub dropout_prob: Option<f64>,
    /// Whether the norms have gains.
    #[serde(default = "yes")]
    pub norm_elementwise_affine: bool,
}

const fn yes() -> bool {
    true
}

impl LGATrConfig {
    /// Settings of a model from `inputs` over `hidden` to `outputs`, the others as published.
    pub fn new(num_blocks: usize, inputs: Channels, hidden: Channels, outputs: Channels) -> Self {
        Self {
            num_blocks,
            in_mv_channels: inputs.multivectors,
            out_mv_channels: outputs.multivectors,
            hidden_mv_channels: hidden.multivectors,
            in_s_channels: inputs.scalars,
            out_s_channels: outputs.scalars,
            hidden_s_channels: hidden.scalars,
            attention: AttentionConfig::default(),
            mlp: MlpConfig::default(),
            primitives: PrimitivesConfig::default(),
            reinsert_mv_channels: Vec::new(),
            reinsert_s_channels: Vec::new(),
            dropout_prob: None,
            norm_elementwise_affine: true,
        }
    }

    /// Channels of the input, within, and of the output.
    pub(super) const fn channels(&self) -> [Channels; 3] {
        [
            Channels::new(self.in_mv_channels, self.in_s_channels),
            Channels::new(self.hidden_mv_channels, self.hidden_s_channels),
            Channels::new(self.out_mv_channels, self.out_s_channels),
        ]
    }
}

/// Settings of a [`ConditionalLGATr`](super::ConditionalLGATr).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionalLGATrConfig {
    /// Blocks.
    pub num_blocks: usize,
    /// Multivectors of the input.
    pub in_mv_channels: usize,
    /// Multivectors of the condition.
    pub mv_channels_cond: usize,
    /// Multivectors of the output.
    pub out_mv_channels: usize,
    /// Multivectors within.
    pub hidden_mv_channels: usize,
    /// Scalars of the input, 0 for none.
    #[serde(default)]
    pub in_s_channels: usize,
    /// Scalars of the condition, 0 for none.
    #[serde(default)]
    pub s_channels_cond: usize,
    /// Scalars of the output, 0 for none.
    #[serde(default)]
    pub out_s_channels: usize,
    /// Scalars within; products of multivectors need some.
    #[serde(default)]
    pub hidden_s_channels: usize,
    /// Self-attention.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// Attention to the condition.
    #[serde(default)]
    pub crossattention: AttentionConfig,
    /// The layers behind attention.
    #[serde(default)]
    pub mlp: MlpConfig,
    /// The group and the products.
    #[serde(default)]
    pub primitives: PrimitivesConfig,
    /// Probability of dropout in training; `None` has no layers of dropout.
    #[serde(default)]
    pub dropout_prob: Option<f64>,
    /// Whether the norms have gains.
    #[serde(default = "yes")]
    pub norm_elementwise_affine: bool,
}

impl ConditionalLGATrConfig {
    /// Channels of the condition.
    pub(super) const fn condition(&self) -> Channels {
        Channels::new(self.mv_channels_cond, self.s_channels_cond)
    }

    /// The settings that an unconditional network has too.
    pub(super) fn unconditional(&self) -> LGATrConfig {
        LGATrConfig {
            num_blocks: self.num_blocks,
            in_mv_channels: self.in_mv_channels,
            out_mv_channels: self.out_mv_channels,
            hidden_mv_channels: self.hidden_mv_channels,
            in_s_channels: self.in_s_channels,
            out_s_channels: self.out_s_channels,
            hidden_s_channels: self.hidden_s_channels,
            attention: self.attention,
            mlp: self.mlp,
            primitives: self.primitives,
            reinsert_mv_channels: Vec::new(),
            reinsert_s_channels: Vec::new(),
            dropout_prob: self.dropout_prob,
            norm_elementwise_affine: self.norm_elementwise_affine,
        }
    }
}
