//! Self-attention.

use super::{Dropout, Layer, Linear};
use crate::{
    Builder, DeepClone, Error, Module, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::Tensor;
use gradewise_kernels::ops::{AttentionOptions, attention::Sequences};

/// Multi-head self-attention on `[batch, tokens, features]` (Vaswani et al. 2017, arXiv:1706.03762): one linear map to the queries, keys
/// and values of all heads, attention in each head, and one linear map of the concatenated heads.
///
/// Parameters: `qkv.weight` `[features, 3·features]`, `qkv.bias`, `out.weight` `[features, features]`, `out.bias`.
#[derive(Debug, Module, DeepClone)]
pub struct SelfAttention {
    qkv: Linear,
    out: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    causal: bool,
    #[module(skip)]
    dropout: Option<Dropout>,
}

/// Settings of a [`SelfAttention`] for `features` features in `heads` heads.
#[derive(Clone, Debug, Builder)]
pub struct SelfAttentionBuilder {
    features: usize,
    heads: usize,
    /// Whether a token attends only to itself and earlier tokens; `false` by default.
    #[builder(default = false)]
    causal: bool,
    #[builder(default, skip)]
    deviations: Option<(f64, f64)>,
    #[builder(default, skip)]
    dropout: (f64, u64),
}

impl SelfAttentionBuilder {
    /// Dropout of the attention weights in training, with probability `p` (rounded to a multiple of 2⁻¹⁶); none by default. Masks follow from
    /// the `seed` and the pass as those of [`Dropout`] do: give each layer a seed of its own.
    #[must_use]
    pub fn dropout(mut self, p: f64, seed: u64) -> Self {
        self.dropout = (p, seed);
        self
    }

    /// Standard deviations of the initial weights of the first and of the last map, instead of 1/√features.
    #[must_use]
    pub fn deviations(mut self, first: f64, last: f64) -> Self {
        self.deviations = Some((first, last));
        self
    }

    /// Draws the parameters.
    ///
    /// # Errors
    /// Features that are not a multiple of the heads; a probability of dropout outside 0 ≤ p < 1; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<SelfAttention> {
        at_least_one("SelfAttention", &[("features", self.features)])?;
        let Self { features, heads, causal, deviations, dropout: (p, seed) } = self;
        let dropout = Dropout::new(p, seed)?;
        if heads == 0 || !features.is_multiple_of(heads) {
            return Err(Error::Argument {
                operation: "SelfAttention",
                argument: "heads",
                actual: heads.to_string(),
                expected: format!("a divisor of {features}, the number of features"),
            });
        }
        let placement = placement.into();
        let (mut qkv, mut out) = (Linear::new(features, 3 * features), Linear::new(features, features));
        if let Some((first, last)) = deviations {
            (qkv, out) = (qkv.deviation(first), out.deviation(last));
        }
        Ok(SelfAttention {
            qkv: qkv.init(&placement, rng)?,
            out: out.init(&placement, rng)?,
            heads,
            causal,
            dropout: (p > 0.0).then_some(dropout),
        })
    }
}

impl SelfAttention {
    /// As [`forward`](Layer::forward) where the tokens of each batch are packed sequences, which do not see each other.
    ///
    /// # Errors
    /// As [`forward`](Layer::forward); sequences that do not end at the tokens.
    pub fn forward_packed(&self, x: &Tensor, sequences: &Sequences) -> Result<Tensor> {
        in_layer_of("SelfAttention::forward_packed", x, || self.attend(x, Some(sequences.clone())))
    }

    fn attend(&self, x: &Tensor, sequences: Option<Sequences>) -> Result<Tensor> {
        let dropout = self.dropout.as_ref().and_then(Dropout::of_weights);
        let options =
            AttentionOptions { causal: self.causal, sequences, dropout, ..AttentionOptions::default() };
        self.out.forward(&self.qkv.forward(x)?.self_attention(self.heads, &options)?)
    }
}

impl Layer for SelfAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("SelfAttention::forward", x, || self.attend(x, None))
    }
}
