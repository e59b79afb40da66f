//! Self-attention.

use super::{Layer, Linear};
use crate::{Error, Module, Placement, Result};
use gradewise_autograd::Tensor;
use gradewise_kernels::ops::AttentionOptions;

/// Multi-head self-attention on `[batch, tokens, features]` (Vaswani et al. 2017, arXiv:1706.03762): one linear map to the queries, keys
/// and values of all heads, attention in each head, and one linear map of the concatenated heads.
///
/// Parameters: `qkv.weight` `[features, 3·features]`, `qkv.bias`, `out.weight` `[features, features]`, `out.bias`.
#[derive(Debug, Module)]
pub struct SelfAttention {
    qkv: Linear,
    out: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    causal: bool,
}

/// Settings of a [`SelfAttention`].
#[derive(Clone, Debug)]
pub struct SelfAttentionBuilder {
    features: usize,
    heads: usize,
    causal: bool,
    deviations: Option<(f64, f64)>,
}

impl SelfAttention {
    /// For `features` features in `heads` heads.
    #[expect(clippy::new_ret_no_self, reason = "a layer is built before it has parameters")]
    pub fn new(features: usize, heads: usize) -> SelfAttentionBuilder {
        SelfAttentionBuilder { features, heads, causal: false, deviations: None }
    }
}

impl SelfAttentionBuilder {
    /// Whether a token attends only to itself and earlier tokens; `false` by default.
    #[must_use]
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
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
    /// Features that are not a multiple of the heads; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<SelfAttention> {
        let Self { features, heads, causal, deviations } = self;
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
        Ok(SelfAttention { qkv: qkv.init(&placement, rng)?, out: out.init(&placement, rng)?, heads, causal })
    }
}

impl Layer for SelfAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let options = AttentionOptions { causal: self.causal, ..AttentionOptions::default() };
        self.out.forward(&self.qkv.forward(x)?.self_attention(self.heads, &options)?)
    }
}
