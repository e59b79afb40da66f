//! How tokens form sets.

use crate::{Space, Streams};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Index, ops::AttentionOptions};
use gradewise_nn::{Error, Placement, Result};

/// The grouping of tokens: `batch` sets of `tokens` tokens each, concatenated.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
    seen: Seen,
    /// `[batch, tokens, 1]`: 1/length of the set for its tokens, 0 for padding.
    weights: Option<Tensor>,
}

/// Which tokens are not padding.
#[derive(Clone, Debug)]
enum Seen {
    All,
    /// The first of each set.
    Lengths(Index),
    /// Those of other numbers than 0, `[batch, tokens]`.
    Mask(Array),
}

impl TokenBatch {
    /// Sets of `tokens` each.
    pub fn new(batch: usize, tokens: usize) -> Self {
        Self { batch, tokens, seen: Seen::All, weights: None }
    }

    /// Padded sets: the first `lengths[i]` tokens of set `i` are valid, the rest is padding, which is masked in attention.
    ///
    /// # Errors
    /// A length above `tokens`; no memory.
    pub fn padded(lengths: &[usize], tokens: usize, placement: impl Into<Placement>) -> Result<Self> {
        let placement = &placement.into();
        let Placement { device, dtype } = placement;
        let weight = |&length: &usize| {
            (0..tokens).map(move |token| if token < length { 1.0 / length as f64 } else { 0.0 })
        };
        let weights: Vec<f64> = lengths.iter().flat_map(weight).collect();
        let weights = Array::from_f64(&weights, [lengths.len(), tokens, 1], *dtype, device)?;
        let seen = Seen::Lengths(Index::new(lengths, tokens + 1, device)?);
        Ok(Self { batch: lengths.len(), tokens, seen, weights: Some(Tensor::new(weights)) })
    }

    /// Padded sets by the weight of each token, `[batch, tokens]`: one over the length of its set, 0 for padding, which is masked in attention.
    ///
    /// # Errors
    /// Weights of another rank.
    pub fn weighted(weights: &Tensor) -> Result<Self> {
        let &[batch, tokens] = weights.shape().dims() else {
            return Err(Error::Argument {
                operation: "TokenBatch",
                argument: "weights",
                actual: weights.shape().to_string(),
                expected: "[batch, tokens]".to_owned(),
            });
        };
        let seen = Seen::Mask(weights.array().clone());
        Ok(Self { batch, tokens, seen, weights: Some(weights.reshape([batch, tokens, 1])?) })
    }

    /// The number of sets and of tokens in each.
    pub const fn sizes(&self) -> (usize, usize) {
        (self.batch, self.tokens)
    }

    /// Attention to these tokens as keys.
    pub(crate) fn options(&self) -> Result<AttentionOptions> {
        let none = AttentionOptions::default();
        Ok(match &self.seen {
            Seen::All => none,
            Seen::Lengths(lengths) => AttentionOptions { lengths: Some(lengths.clone()), ..none },
            Seen::Mask(mask) => AttentionOptions { mask: Some(mask.clone()), ..none },
        })
    }

    /// For each token of `x`, the e₁₂₃ component averaged over the channels and tokens of its set: `[1, tokens, 1]`; `None` if the algebra
    /// has no points.
    ///
    /// # Errors
    /// Another number of tokens.
    pub fn reference(&self, space: &Space, x: &Streams) -> Result<Option<Tensor>> {
        let Some(weight) = space.algebra().blade_of_mask(0b111).filter(|_| space.has_points()) else {
            return Ok(None);
        };
        self.check(x)?;
        let channels = x.multivectors.shape()[2];
        let weights =
            x.multivectors.slice(0, weight..weight + 1)?.reshape([self.batch, self.tokens, channels])?;
        let mean = match &self.weights {
            None => weights.mean(&[1, 2], true)?,
            Some(there) => weights.mean(&[2], true)?.mul(there)?.sum(&[1], true)?,
        };
        let shape = [self.batch, self.tokens, 1];
        Ok(Some(mean.broadcast_to(&shape.into())?.reshape([1, self.batch * self.tokens, 1])?))
    }

    pub(crate) fn check(&self, x: &Streams) -> Result<()> {
        if x.tokens() == self.batch * self.tokens {
            return Ok(());
        }
        Err(Error::Argument {
            operation: "TokenBatch",
            argument: "x",
            actual: format!("{} tokens", x.tokens()),
            expected: format!("{} sets of {}", self.batch, self.tokens),
        })
    }
}
