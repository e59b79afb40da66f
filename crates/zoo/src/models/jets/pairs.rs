//! Attention that sees the invariants of pairs of particles.

mod attention;
mod block;
mod streams;

use super::{JetTaggerConfig, Reference};
use crate::data::jets::JetBatch;
use attention::Pairs;
use block::Block;
use gradewise_autograd::{Tensor, concat};
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    layers::{Activation, Layer, LayerNorm, Linear, Sequential},
};
use streams::{Streams, products, smooth_root};

/// Scalars of a particle at the input: logarithms of its energy in the rest frame of the jet, of that energy in units of the jet's mass, of the
/// jet's mass and of the number of particles.
const SCALARS: usize = 4;
/// Added to energies in units of the jet's mass before their logarithm is taken.
const SMALLEST_ENERGY: f64 = 1e-3;

/// A small transformer of scalars and vectors (grade 1 of Cl(1,3)) whose attention sees, for each pair of particles, their product
/// p_i·p_j/m² and their energies p_i·P/m² in the rest frame of the jet, of momentum P and mass m: what the invariant mass, kT, ΔR and z of
/// pairs are made of (Qu et al. 2022, arXiv:2202.03772), with the jet's own frame in place of the laboratory's. Attention also adds up
/// vectors, so that squares of sums of momenta, the masses of subjets, become scalars.
///
/// Logits are invariant under all of O(1,3), unless the model sees directions of the laboratory; [`Reference`] says what is left then.
#[derive(Module, DeepClone)]
pub struct JetPairs {
    embedding: Linear,
    vectors: Linear,
    pairs: Pairs,
    blocks: Vec<Block>,
    norm: LayerNorm,
    pooled: Linear,
    classifier: Sequential,
    #[module(skip)]
    reference: Reference,
}

impl JetPairs {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &JetTaggerConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let JetTaggerConfig { hidden: vectors, layers, units, scalars, heads, reference, .. } = *config;
        let channels = 2 + reference.axes().len();
        Ok(Self {
            embedding: Linear::new(SCALARS + channels, scalars).init(placement, rng)?,
            vectors: Linear::new(channels, vectors).bias(false).init(placement, rng)?,
            pairs: Pairs::init(units, layers * heads, placement, rng)?,
            blocks: (0..layers)
                .map(|_| Block::init((vectors, scalars), heads, placement, rng))
                .collect::<Result<_>>()?,
            norm: LayerNorm::new(scalars).init(placement)?,
            pooled: Linear::new(vectors, vectors).bias(false).init(placement, rng)?,
            classifier: Sequential::new()
                .then(Linear::new(scalars + vectors, units).init(placement, rng)?)
                .then(Activation::Silu)
                .then(Linear::new(units, 2).init(placement, rng)?),
            reference,
        })
    }

    /// Logits of the classes, `[jets, 2]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn forward(&self, batch: &JetBatch) -> Result<Tensor> {
        let (jets, particles) = (batch.jets, batch.particles);
        let energies = batch.features.slice(0, 0..1)?.slice(2, 2..3)?.mul_scalar(0.5)?;
        let energies = energies.reshape([jets, particles, 1])?.add_scalar(SMALLEST_ENERGY)?.log()?;
        let mut streams = self.embed(batch, &energies)?;
        let biases = self.pairs.forward(&batch.products, &energies, &there(batch)?)?;
        let heads = biases.shape()[1] / self.blocks.len().max(1);
        for (position, block) in self.blocks.iter().enumerate() {
            let bias = biases.slice(1, position * heads..(position + 1) * heads)?;
            streams = block.forward(&streams, &bias, (jets, particles))?;
        }
        let weights = batch.particle_weights.reshape([jets, particles, 1])?;
        let scalars = self.norm.forward(&streams.scalars)?;
        let channels = scalars.shape()[1];
        let scalars = scalars.reshape([jets, particles, channels])?.mul(&weights)?.sum(&[1], false)?;
        let vectors = streams.vectors.shape()[2];
        let sums = streams.vectors.reshape([4, jets, particles, vectors])?.mul(&weights)?.sum(&[2], false)?;
        // The mean of ten particles is a tenth of the jet.
        let sums = self.pooled.forward(&sums)?;
        let masses = smooth_root(&products(&sums, &sums)?)?.reshape([jets, vectors])?;
        self.classifier.forward(&concat(&[&scalars, &masses], 1)?)
    }

    /// The directions of the laboratory that it sees.
    pub const fn reference(&self) -> Reference {
        self.reference
    }

    fn embed(&self, batch: &JetBatch, energies: &Tensor) -> Result<Streams> {
        let (jets, particles) = (batch.jets, batch.particles);
        let nodes = jets * particles;
        let mut vectors = batch.features.slice(0, 1..5)?.slice(2, 0..2)?;
        let axes = self.reference.axes();
        if !axes.is_empty() {
            let count = axes.len();
            let seen = batch.references.slice(2, axes)?.reshape([4, jets, 1, count])?;
            let seen = seen.broadcast_to(&[4, jets, particles, count].into())?.reshape([4, nodes, count])?;
            vectors = concat(&[&vectors, &seen], 2)?;
        }
        let mass = batch.features.slice(0, 0..1)?.slice(2, 3..4)?.reshape([nodes, 1])?;
        let energies = energies.reshape([nodes, 1])?.mul_scalar(0.5)?.add_scalar(2.0)?;
        let counts = batch.particle_weights.reshape([nodes, 1])?.add_scalar(SMALLEST_WEIGHT)?.log()?;
        let counts = counts.mul_scalar(-1.0)?.add_scalar(-4.0)?;
        // What a particle's momentum has with the jet and the directions of the laboratory.
        let own = vectors.slice(2, 0..1)?;
        let with_all = products(&vectors, &own)?;
        let with_all = smooth_root(&with_all.reshape([nodes, with_all.shape()[2]])?)?;
        let scalars = concat(&[&energies, &mass.add(&energies)?, &mass, &counts, &with_all], 1)?;
        Ok(Streams { scalars: self.embedding.forward(&scalars)?, vectors: self.vectors.forward(&vectors)? })
    }
}

/// Keeps the logarithm of the weight of padding finite.
const SMALLEST_WEIGHT: f64 = 1e-4;

/// `[jets, 1, 1, particles]`: 1, and 0 for padding.
fn there(batch: &JetBatch) -> Result<Tensor> {
    // One over the number of particles is at least 1e-6.
    let there = batch.particle_weights.mul_scalar(1e6)?.clamp(0.0, 1.0)?;
    Ok(there.reshape([batch.jets, 1, 1, batch.particles])?)
}

#[cfg(test)]
mod tests;
