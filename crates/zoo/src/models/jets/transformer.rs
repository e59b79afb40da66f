//! The published transformers as taggers: the log odds are the mean over the particles of a scalar.

use super::JetTaggerConfig;
use crate::data::jets::JetBatch;
use gradewise_autograd::{Tensor, concat};
use gradewise_nn::{DeepClone, Module, Placement, Result};
use gradewise_transformers::{
    Streams, TokenBatch,
    lgatr::LGATr,
    slim::{LGATrSlim, VectorStreams},
};

/// L-GATr (Spinner et al. 2024, arXiv:2405.14806) on the particles of a jet: their momenta and that of the jet as multivectors, invariants as
/// scalars. There are no reference vectors such as beams.
///
/// Parameters: those of the published network, under `net`.
#[derive(Module, DeepClone)]
pub struct JetLGATr {
    net: LGATr,
}

impl JetLGATr {
    pub(super) fn init<R: rand::Rng + ?Sized>(
        config: &JetTaggerConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self { net: LGATr::init(&config.lgatr(), placement, rng)? })
    }

    pub(super) fn forward(&self, batch: &JetBatch) -> Result<Tensor> {
        let multivectors = batch.multivectors()?.slice(2, 0..VECTORS)?;
        let y = self.net.forward(&Streams::new(multivectors, scalars(batch)?)?, &tokens(batch)?)?;
        logits(&y.multivectors.slice(0, 0..1)?, batch)
    }
}

/// L-GATr-slim (Petitjean et al. 2025, arXiv:2512.17011) on the particles of a jet: their momenta and that of the jet as vectors, invariants
/// as scalars.
///
/// Parameters: those of the published network, under `net`.
#[derive(Module, DeepClone)]
pub struct JetSlim {
    net: LGATrSlim,
}

impl JetSlim {
    pub(super) fn init<R: rand::Rng + ?Sized>(
        config: &JetTaggerConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self { net: LGATrSlim::init(&config.slim(), placement, rng)? })
    }

    pub(super) fn forward(&self, batch: &JetBatch) -> Result<Tensor> {
        let vectors = batch.features.slice(0, 1..5)?.slice(2, 0..VECTORS)?;
        let y = self.net.forward(&VectorStreams::new(vectors, scalars(batch)?)?, &tokens(batch)?)?;
        logits(&y.scalars, batch)
    }
}

/// Channels of [`JetBatch::features`] that hold vectors; the others hold scalars.
const VECTORS: usize = 2;

/// `[particles of all jets, scalars]`
fn scalars(batch: &JetBatch) -> Result<Tensor> {
    let (nodes, channels) = (batch.features.shape()[1], batch.features.shape()[2]);
    let scalars = batch.features.slice(0, 0..1)?.slice(2, VECTORS..channels)?;
    Ok(scalars.reshape([nodes, channels - VECTORS])?)
}

/// A set for each jet, without its padding.
fn tokens(batch: &JetBatch) -> Result<TokenBatch> {
    let particles = batch.particles;
    TokenBatch::weighted(&batch.particle_weights.reshape([batch.jets, particles])?)
}

/// The logits `[jets, 2]` whose difference is the mean of a number of each particle.
fn logits(odds: &Tensor, batch: &JetBatch) -> Result<Tensor> {
    let particles = batch.particles;
    let shape = [batch.jets, particles];
    let weights = batch.particle_weights.reshape(shape)?;
    let mean = odds.reshape(shape)?.mul(&weights)?.sum(&[1], true)?;
    let zeros = Tensor::zeros([batch.jets, 1], mean.dtype(), &mean.device())?;
    Ok(concat(&[&zeros, &mean], 1)?)
}
