//! Settings, under their published names.

use crate::{Channels, layers::Nonlinearity};
use gradewise_nn::{Error, Result, data::at_least_one};
use serde::{Deserialize, Serialize};

/// Heads of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// Heads.
    pub num_heads: usize,
    /// Whether all heads share keys and values.
    pub multi_query: bool,
    /// Channels of all heads together over those of the input. A head has at least one multivector and four scalars; what does not divide
    /// is left out.
    pub increase_hidden_channels: usize,
    /// ε of the factor w/(w² + ε) of points of weight w.
    pub normalizer_eps: f64,
    /// Whether scalars of queries and keys are rotated by the number of their token.
    pub pos_encoding: bool,
    /// Base of the frequencies of those rotations.
    pub pos_enc_base: f64,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self {
            num_heads: 8,
            multi_query: true,
            increase_hidden_channels: 2,
            normalizer_eps: 1e-3,
            pos_encoding: false,
            pos_enc_base: 4096.0,
        }
    }
}

impl AttentionConfig {
    /// Channels of a head, for an input of these channels: an even number of scalars if they are rotated.
    ///
    /// # Errors
    /// No heads, a ratio of 0, or no scalars, which attention needs; an ε or a base that is not above 0.
    pub fn of_head(&self, inputs: Channels) -> Result<Channels> {
        const NAME: &str = "AttentionConfig";
        let ratio = self.increase_hidden_channels;
        at_least_one(
            NAME,
            &[
                ("num_heads", self.num_heads),
                ("increase_hidden_channels", ratio),
                ("hidden_s_channels", inputs.scalars),
            ],
        )?;
        for (argument, value) in
            [("normalizer_eps", self.normalizer_eps), ("pos_enc_base", self.pos_enc_base)]
        {
            if !(value > 0.0 && value.is_finite()) {
                let expected = "more than 0, finite".to_owned();
                return Err(Error::Argument {
                    operation: NAME,
                    argument,
                    actual: value.to_string(),
                    expected,
                });
            }
        }
        let scalars = (ratio * inputs.scalars / self.num_heads).max(4);
        let scalars = if self.pos_encoding { (scalars + scalars % 2).max(8) } else { scalars };
        Ok(Channels::new((ratio * inputs.multivectors / self.num_heads).max(1), scalars))
    }
}

/// The layers behind attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MlpConfig {
    /// The gate: `relu`, `gelu` or `sigmoid`. GELU of multivectors is the approximation with tanh, of scalars the exact one.
    pub activation: Nonlinearity,
}

impl Default for MlpConfig {
    fn default() -> Self {
        Self { activation: Nonlinearity::Gelu }
    }
}

/// Settings of a [`GATr`](super::GATr).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GATrConfig {
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
    /// Scalars within, at least 1.
    pub hidden_s_channels: usize,
    /// Attention.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// The layers behind attention.
    #[serde(default)]
    pub mlp: MlpConfig,
    /// Blocks.
    #[serde(default = "ten")]
    pub num_blocks: usize,
    /// Multivectors of the input, by number, that queries and keys of each block are made of too.
    #[serde(default)]
    pub reinsert_mv_channels: Vec<usize>,
    /// Scalars of the input likewise.
    #[serde(default)]
    pub reinsert_s_channels: Vec<usize>,
    /// Probability of dropout in training; `None` has no layers of dropout.
    #[serde(default)]
    pub dropout_prob: Option<f64>,
}

const fn ten() -> usize {
    10
}

impl GATrConfig {
    /// Settings of a model from `inputs` over `hidden` to `outputs`, the others as published.
    pub fn new(num_blocks: usize, inputs: Channels, hidden: Channels, outputs: Channels) -> Self {
        Self {
            in_mv_channels: inputs.multivectors,
            out_mv_channels: outputs.multivectors,
            hidden_mv_channels: hidden.multivectors,
            in_s_channels: inputs.scalars,
            out_s_channels: outputs.scalars,
            hidden_s_channels: hidden.scalars,
            attention: AttentionConfig::default(),
            mlp: MlpConfig::default(),
            num_blocks,
            reinsert_mv_channels: Vec::new(),
            reinsert_s_channels: Vec::new(),
            dropout_prob: None,
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

/// Settings of an [`AxialGATr`](super::AxialGATr).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxialGATrConfig {
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
    /// Scalars within, at least 1.
    pub hidden_s_channels: usize,
    /// Attention; whether there are positions is said for each axis by `pos_encodings`.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// The layers behind attention.
    #[serde(default)]
    pub mlp: MlpConfig,
    /// Blocks.
    #[serde(default = "twenty")]
    pub num_blocks: usize,
    /// Whether tokens are told apart by their number along the first and along the second axis.
    #[serde(default)]
    pub pos_encodings: [bool; 2],
}

const fn twenty() -> usize {
    20
}

impl AxialGATrConfig {
    /// The settings of the block of this number: even ones attend along the second axis, odd ones along the first.
    pub(super) fn block(&self, number: usize) -> GATrConfig {
        GATrConfig {
            in_mv_channels: self.in_mv_channels,
            out_mv_channels: self.out_mv_channels,
            hidden_mv_channels: self.hidden_mv_channels,
            in_s_channels: self.in_s_channels,
            out_s_channels: self.out_s_channels,
            hidden_s_channels: self.hidden_s_channels,
            attention: AttentionConfig {
                pos_encoding: self.pos_encodings[(number + 1) % 2],
                ..self.attention
            },
            mlp: self.mlp,
            num_blocks: self.num_blocks,
            reinsert_mv_channels: Vec::new(),
            reinsert_s_channels: Vec::new(),
            dropout_prob: None,
        }
    }
}
