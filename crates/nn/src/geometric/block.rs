//! The block that a geometric transformer repeats.

use super::{
    AttentionSize, Channels, EquiLinear, GeometricAttention, GeometricBilinear, GradeDropout,
    InvariantLayerNorm, Space, Streams, TokenBatch, scalar_gate,
};
use crate::{Module, Placement, Result};
use gradewise_autograd::Tensor;

/// Sizes of a [`GeometricBlock`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockConfig {
    /// Channels of the streams.
    pub channels: Channels,
    /// Size of the attention.
    pub attention: AttentionSize,
    /// Hidden channels of the perceptron.
    pub hidden: Channels,
    /// Dropout probability of grades in the residual branches, in training.
    pub dropout: f64,
}

/// x + attention(norm(x)), then x + perceptron(norm(x)), where the perceptron consists of bilinear products, a gate and a linear map.
///
/// Parameters: those of `attention`, `bilinear` and `out`.
#[derive(Debug, Module)]
pub struct GeometricBlock {
    #[module(skip)]
    norm: InvariantLayerNorm,
    attention: GeometricAttention,
    bilinear: GeometricBilinear,
    out: EquiLinear,
    #[module(skip)]
    dropouts: [GradeDropout; 2],
}

impl GeometricBlock {
    /// Draws the parameters; `seed` determines the dropout masks.
    ///
    /// # Errors
    /// No heads, a probability outside 0 ≤ p < 1, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &BlockConfig,
        space: &Space,
        seed: u64,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let BlockConfig { channels, attention, hidden, dropout } = *config;
        let dropout = |index: u64| {
            GradeDropout::new(space, dropout, seed.wrapping_mul(2).wrapping_add(index), &placement.device)
        };
        Ok(Self {
            attention: GeometricAttention::init(channels, attention, space, placement, rng)?,
            bilinear: GeometricBilinear::init((channels, hidden, hidden), space, placement, rng)?,
            out: EquiLinear::init((hidden, channels), space, placement, rng)?,
            dropouts: [dropout(0)?, dropout(1)?],
            norm: InvariantLayerNorm::new(space, placement)?,
        })
    }

    /// New streams; `reference` as in [`GeometricBilinear::forward`].
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &Streams, tokens: &TokenBatch, reference: Option<&Tensor>) -> Result<Streams> {
        let gathered = self.attention.forward(&self.norm.forward(x)?, tokens)?;
        let x = x.add(&self.dropouts[0].forward(&gathered)?)?;
        let products = self.bilinear.forward(&self.norm.forward(&x)?, reference)?;
        let changed = self.out.forward(&scalar_gate(&products)?)?;
        x.add(&self.dropouts[1].forward(&changed)?)
    }
}
