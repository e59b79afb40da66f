//! A generative transformer over bytes (Radford et al. 2019), which predicts the next byte.

use crate::data::text::{BYTES, TextBatch};
use gradewise_autograd::{Tensor, checkpoint, no_grad};
use gradewise_kernels::{
    Index,
    ops::{CrossEntropyOptions, Order},
};
use gradewise_nn::{
    DeepClone, Error, Module, Parameter, Placement, Result, Visitor,
    data::at_least_one,
    layers::{Activation, Dropout, Embedding, Layer, LayerNorm, Linear, SelfAttention},
};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Sizes of the model. The defaults have 834,304 parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GptConfig {
    /// The context length, in tokens.
    pub block: usize,
    /// Features of a token.
    pub width: usize,
    /// Attention heads; a divisor of the width.
    pub heads: usize,
    /// Blocks of attention and perceptron.
    pub layers: usize,
    /// Dropout probability in the residual branches, in training.
    pub dropout: f64,
    /// Dropout probability of the attention weights, in training.
    pub attention_dropout: f64,
    /// Recompute blocks in the backward pass instead of storing their intermediates: a fraction of the memory for a third more time.
    pub recompute: bool,
}

impl Default for GptConfig {
    fn default() -> Self {
        Self {
            block: 64,
            width: 128,
            heads: 4,
            layers: 4,
            dropout: 0.0,
            attention_dropout: 0.0,
            recompute: false,
        }
    }
}

/// x + attention(norm(x)), then x + perceptron(norm(x)).
#[derive(DeepClone)]
struct Block {
    norms: [LayerNorm; 2],
    attention: SelfAttention,
    up: Linear,
    down: Linear,
    dropouts: [Dropout; 2],
}

impl Block {
    fn init<R: rand::Rng + ?Sized>(
        config: &GptConfig,
        index: usize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let width = config.width;
        // Scaled so that the sum of 2·layers residual branches has the variance of one.
        let last = DEVIATION / (2.0 * config.layers as f64).sqrt();
        let attention = SelfAttention::new(width, config.heads)
            .causal(true)
            .deviations(DEVIATION, last)
            .dropout(config.attention_dropout, ATTENTION_SEEDS + index as u64)
            .init(placement, rng)?;
        let dropout = |position: usize| Dropout::new(config.dropout, (2 * index + position + 1) as u64);
        Ok(Self {
            norms: [LayerNorm::new(width).init(placement)?, LayerNorm::new(width).init(placement)?],
            attention,
            up: Linear::new(width, 4 * width).deviation(DEVIATION).init(placement, rng)?,
            down: Linear::new(4 * width, width).deviation(last).init(placement, rng)?,
            dropouts: [dropout(0)?, dropout(1)?],
        })
    }
}

impl Module for Block {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("norm1", &self.norms[0]);
        visitor.module("attention", &self.attention);
        visitor.module("norm2", &self.norms[1]);
        visitor.module("up", &self.up);
        visitor.module("down", &self.down);
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let seen = self.attention.forward(&self.norms[0].forward(x)?)?;
        let x = x.add(&self.dropouts[0].forward(&seen)?)?;
        let hidden = Activation::Gelu.forward(&self.up.forward(&self.norms[1].forward(&x)?)?)?;
        Ok(x.add(&self.dropouts[1].forward(&self.down.forward(&hidden)?)?)?)
    }
}

/// As [`Block::forward`], with recomputation in the backward pass.
fn recomputed(block: &Arc<Block>, x: &Tensor) -> Result<Tensor> {
    let block = Arc::clone(block);
    Ok(checkpoint(&[x], move |x| Ok(block.forward(&x[0])?))?)
}

/// Seeds of the dropout of attention weights, beyond those of the residual branches.
const ATTENTION_SEEDS: u64 = 1 << 32;

/// Standard deviation of initial weights.
const DEVIATION: f64 = 0.02;

/// The model: embeddings of bytes and of positions, blocks, a norm, and the transposed byte embeddings as the output layer.
#[derive(Module, DeepClone)]
pub struct Gpt {
    tokens: Embedding,
    positions: Parameter,
    blocks: Vec<Arc<Block>>,
    norm: LayerNorm,
    #[module(skip)]
    config: GptConfig,
}

/// Sampling of the next byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The logits are divided by the temperature. Below 1, likely bytes are preferred; 0 takes the most likely byte.
    pub temperature: f64,
    /// Sample only from the `top_k` most likely bytes; 0 for all.
    pub top_k: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40 }
    }
}

impl Gpt {
    /// Draws the parameters: normal with deviation 0.02, smaller by √(2·layers) for the last layer of each residual branch.
    ///
    /// # Errors
    /// Sizes that do not fit together, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &GptConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let GptConfig { block, width, heads, layers, .. } = *config;
        at_least_one("Gpt", &[("block", block), ("width", width), ("heads", heads), ("layers", layers)])?;
        let placement = placement.into();
        Ok(Self {
            tokens: Embedding::new(BYTES, width).deviation(DEVIATION).init(&placement, rng)?,
            positions: placement.normal([block, width], DEVIATION, rng)?,
            blocks: (0..layers)
                .map(|index| Block::init(config, index, &placement, rng).map(Arc::new))
                .collect::<Result<_>>()?,
            norm: LayerNorm::new(width).init(&placement)?,
            config: *config,
        })
    }

    /// Logits of the byte after each token, `[batch, tokens, 256]`, for `batch` rows of tokens.
    ///
    /// # Errors
    /// Rows longer than the context length; tokens on another device.
    pub fn forward(&self, tokens: &Index, batch: usize) -> Result<Tensor> {
        let length = tokens.len().checked_div(batch).unwrap_or(0);
        if length > self.config.block || length * batch != tokens.len() {
            return Err(Error::Argument {
                operation: "Gpt",
                argument: "tokens",
                actual: format!("{} in {batch} rows", tokens.len()),
                expected: format!("rows of at most {}", self.config.block),
            });
        }
        let positions = self.positions.tensor().slice(0, 0..length)?;
        let mut x = self.tokens.forward(tokens, [batch, length])?.add(&positions)?;
        for block in &self.blocks {
            x = if self.config.recompute { recomputed(block, &x)? } else { block.forward(&x)? };
        }
        let x = self.norm.forward(&x)?;
        Ok(x.matmul_transposed(&self.tokens.weight().tensor(), false, true)?)
    }

    /// The mean of −log probability of the targets, in nats per byte.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn loss(&self, batch: &TextBatch) -> Result<Tensor> {
        Self::mean_loss(&[self], batch)
    }

    /// The [`loss`](Self::loss) of the mean of several models' logits, which is the loss of the normalised geometric
    /// mean of their probabilities.
    ///
    /// # Errors
    /// No models; as [`forward`](Self::forward).
    pub fn mean_loss(models: &[&Self], batch: &TextBatch) -> Result<Tensor> {
        let logits = |model: &Self| model.forward(&batch.tokens, batch.rows);
        let Some((first, others)) = models.split_first() else {
            return Err(Error::Argument {
                operation: "Gpt::mean_loss",
                argument: "models",
                actual: "none".to_owned(),
                expected: "at least one".to_owned(),
            });
        };
        let mut mean = logits(first)?;
        for other in others {
            mean = mean.add(&logits(other)?)?;
        }
        if !others.is_empty() {
            mean = mean.mul_scalar(1.0 / models.len() as f64)?;
        }
        Ok(mean.cross_entropy(&batch.targets, &CrossEntropyOptions::default())?)
    }

    /// Generates `count` bytes after `prompt`, which must not be empty; calls `seen` with each.
    ///
    /// # Errors
    /// An empty prompt, a negative temperature; logits that are not finite; from the device.
    pub fn generate(
        &self,
        prompt: &[u8],
        count: usize,
        sampling: &Sampling,
        rng: &mut impl rand::Rng,
        mut seen: impl FnMut(u8),
    ) -> Result<Vec<u8>> {
        let refuse = |argument, actual: String, expected: &str| {
            Err(Error::Argument { operation: "generate", argument, actual, expected: expected.to_owned() })
        };
        if prompt.is_empty() {
            return refuse("prompt", "empty".to_owned(), "at least one byte to go on from");
        }
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            return refuse("temperature", sampling.temperature.to_string(), "at least 0");
        }
        let device = self.positions.array().device();
        let mut text = prompt.to_vec();
        for _ in 0..count {
            let context: Vec<usize> = text[text.len().saturating_sub(self.config.block)..]
                .iter()
                .map(|&byte| byte.into())
                .collect();
            let tokens = Index::new(&context, BYTES, &device)?;
            let logits = no_grad(|| -> Result<Tensor> {
                let logits = self.forward(&tokens, 1)?;
                Ok(logits.slice(1, context.len() - 1..context.len())?.reshape([BYTES])?)
            })?;
            let next = choose(&logits, sampling, rng)?;
            seen(next);
            text.push(next);
        }
        Ok(text.split_off(prompt.len()))
    }
}

/// Samples a byte from its logits.
fn choose(logits: &Tensor, sampling: &Sampling, rng: &mut impl rand::Rng) -> Result<u8> {
    let kept = match (sampling.temperature, sampling.top_k) {
        (0.0, _) => 1,
        (_, 0) => BYTES,
        (_, count) => count.min(BYTES),
    };
    let (values, bytes) = logits.top_k(0, kept, Order::Descending)?;
    let (values, bytes) = (values.array().to_f64_vec()?, bytes.to_vec()?);
    if values.iter().any(|value| !value.is_finite()) {
        // Logits of diverged weights are not finite and cannot be sampled from.
        let found = logits.array().validate()?;
        return Err(gradewise_kernels::Error::NotFinite {
            operation: "generate",
            argument: "logits",
            shape: logits.shape().clone(),
            nan: found.nan,
            infinite: found.infinite,
        }
        .into());
    }
    let weights: Vec<f64> =
        values.iter().map(|value| ((value - values[0]) / sampling.temperature.max(1e-9)).exp()).collect();
    let mut left = rng.random_range(0.0..1.0) * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    // Rounding may leave a remainder, which goes to the last byte.
    Ok(bytes[drawn.unwrap_or(kept - 1)] as u8)
}
