//! The block that the network repeats.

use super::{EPSILON, GeoMlp, LGATrConfig, SelfAttention};
use crate::{
    Channels, Space, TokenBatch,
    layers::{EquiLayerNorm, FeaturePlanes, GradeDropout},
};
use gradewise_nn::{DeepClone, Module, Placement, Result, in_layer};

/// x + attention(norm1(x)), then x + mlp(norm2(x)).
///
/// Parameters: those of `norm1`, `norm2`, `attention` and `mlp`.
#[derive(Debug, Module, DeepClone)]
pub struct LGATrBlock {
    norm1: EquiLayerNorm,
    norm2: EquiLayerNorm,
    attention: SelfAttention,
    mlp: GeoMlp,
}

impl LGATrBlock {
    /// Draws the parameters of a block of the network with these settings; `seeds` determine its masks of dropout.
    ///
    /// # Errors
    /// As [`SelfAttention::init`] and [`GeoMlp::init`]; a probability outside 0 ≤ p < 1.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &LGATrConfig,
        space: &Space,
        seeds: &mut dyn Iterator<Item = u64>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let [_, channels, _] = config.channels();
        let norm = || {
            EquiLayerNorm::new(channels, space)
                .epsilon(EPSILON)
                .elementwise_affine(config.norm_elementwise_affine)
                .init(placement)
        };
        let mut dropout = || dropout(config.dropout_prob, space, seeds);
        let additional = Channels::new(config.reinsert_mv_channels.len(), config.reinsert_s_channels.len());
        let attention = SelfAttention::init(
            (channels, additional),
            &config.attention,
            space,
            dropout()?,
            placement,
            rng,
        )?;
        let mlp =
            GeoMlp::init(channels, (&config.mlp, &config.primitives), space, &mut dropout, placement, rng)?;
        Ok(Self { norm1: norm()?, norm2: norm()?, attention, mlp })
    }

    /// New features; `additional` are those of the network's input that queries and keys are made of too.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(
        &self,
        x: &FeaturePlanes,
        additional: Option<&FeaturePlanes>,
        tokens: &TokenBatch,
    ) -> Result<FeaturePlanes> {
        in_layer("LGATrBlock::forward", || {
            let x = x.add(&self.attention.forward(&self.norm1.forward(x)?, additional, tokens)?)?;
            x.add(&self.mlp.forward(&self.norm2.forward(&x)?)?)
        })
    }
}

/// A layer of dropout with the next seed, if there is a probability.
pub(crate) fn dropout(
    p: Option<f64>,
    space: &Space,
    seeds: &mut dyn Iterator<Item = u64>,
) -> Result<Option<GradeDropout>> {
    p.map(|p| GradeDropout::new(space, p, seeds.next().unwrap_or_default())).transpose()
}
