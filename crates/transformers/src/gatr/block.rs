//! The block that the network repeats.

use super::{GATrConfig, GeoMlp, SelfAttention};
use crate::{
    Channels, Space, TokenBatch,
    layers::{EquiLayerNorm, FeaturePlanes, GradeDropout},
};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Module, Placement, Result, in_layer};

/// x + attention(norm(x)), then x + mlp(norm(x)).
///
/// Parameters: those of `attention` and `mlp`.
#[derive(Debug, Module, DeepClone)]
pub struct GATrBlock {
    #[module(skip)]
    norm: EquiLayerNorm,
    attention: SelfAttention,
    mlp: GeoMlp,
}

impl GATrBlock {
    /// Draws the parameters of a block of the network with these settings; `seeds` determine its masks of dropout.
    ///
    /// # Errors
    /// As [`SelfAttention::init`] and [`GeoMlp::init`]; a probability outside 0 ≤ p < 1.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &GATrConfig,
        seeds: &mut dyn Iterator<Item = u64>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, space) = (&placement.into(), Space::projective());
        let [_, channels, _] = config.channels();
        let mut dropout = |p: f64| GradeDropout::new(&space, p, seeds.next().unwrap_or_default());
        let p = config.dropout_prob;
        let of_attention = p.map(&mut dropout).transpose()?;
        let of_mlp = p.map(|p| Ok::<_, gradewise_nn::Error>([dropout(p)?, dropout(p)?])).transpose()?;
        let additional = Channels::new(config.reinsert_mv_channels.len(), config.reinsert_s_channels.len());
        Ok(Self {
            norm: EquiLayerNorm::new(channels, &space).init(placement)?,
            attention: SelfAttention::init(
                (channels, additional),
                &config.attention,
                of_attention,
                placement,
                rng,
            )?,
            mlp: GeoMlp::init(channels, &config.mlp, of_mlp, placement, rng)?,
        })
    }

    /// New features; `additional` are those of the network's input that queries and keys are made of too, `reference` as in
    /// [`GeometricBilinear::forward`](super::GeometricBilinear::forward).
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        x: &FeaturePlanes,
        additional: Option<&FeaturePlanes>,
        reference: Option<&Tensor>,
        tokens: &TokenBatch,
    ) -> Result<FeaturePlanes> {
        in_layer("GATrBlock::forward", || {
            let x = x.add(&self.attention.forward(&self.norm.forward(x)?, additional, tokens)?)?;
            x.add(&self.mlp.forward(&self.norm.forward(&x)?, reference)?)
        })
    }
}
