//! A force field: an energy that is invariant under the motions of space, and forces that are its slope.

use super::MessagePassing;
use crate::{
    Error, Module, Placement, Result,
    data::nbody::NBodyBatch,
    layers::{Layer, MvLinear},
    loss,
};
use gradewise_autograd::{BackwardOptions, Tensor, concat, grad};
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use serde::{Deserialize, Serialize};

/// Sizes of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForceFieldConfig {
    /// Multivector features per particle.
    pub hidden: usize,
    /// Rounds of messages.
    pub layers: usize,
}

/// Scalar charges and vectors of position.
const CHANNELS: usize = 2;

/// The energy of charged particles: rounds of messages in Cl(3,0) as in the n-body model of Ruhe et al. (2023, arXiv:2305.11141); the
/// sum over particles of the scalar part of the last features is the energy. Forces are exactly its slope, so the dynamics they
/// drive conserves it.
#[derive(Module)]
pub struct ForceField {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    projection: MvLinear,
}

impl ForceField {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &ForceFieldConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let signature = Signature::CL3;
        Ok(Self {
            embedding: MvLinear::new(CHANNELS, config.hidden, signature).init(placement, rng)?,
            layers: (0..config.layers)
                .map(|_| MessagePassing::init(config.hidden, 1, signature, placement, rng))
                .collect::<Result<_>>()?,
            projection: MvLinear::new(config.hidden, 1, signature).bias(None).init(placement, rng)?,
        })
    }

    /// Energies `[systems]` of the charges of `batch` at `positions` `[3, systems × particles]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn energy(&self, positions: &Tensor, batch: &NBodyBatch) -> Result<Tensor> {
        let (systems, particles) = (batch.systems, batch.particles);
        let nodes = systems * particles;
        // Relative to the centre of each system: a translation changes nothing.
        let by_system = positions.reshape([3, systems, particles])?;
        let centered = by_system.sub(&by_system.mean(&[2], true)?)?.reshape([3, nodes, 1])?;
        let (dtype, device): (DType, Device) = (positions.dtype(), positions.device());
        let zeros = |blades: usize| Tensor::zeros([blades, nodes, 1], dtype, &device);
        let vectors = concat(&[&zeros(1)?, &centered, &zeros(4)?], 0)?;
        let features = concat(&[&batch.features.slice(2, 0..1)?, &vectors], 2)?;
        let mut h = self.embedding.forward(&features)?;
        for layer in &self.layers {
            h = layer.forward(&h, &batch.attributes, &batch.edges)?;
        }
        let scalars = self.projection.forward(&h)?.slice(0, 0..1)?;
        Ok(scalars.reshape([systems, particles])?.sum(&[1], false)?)
    }

    /// Forces `[3, systems × particles]` and energies `[systems]`. With `differentiable` forces a loss on them reaches the parameters:
    /// backward then goes through the backward pass.
    ///
    /// # Errors
    /// As [`energy`](Self::energy); called where no gradients are recorded.
    pub fn forces(&self, batch: &NBodyBatch, differentiable: bool) -> Result<(Tensor, Tensor)> {
        let positions = batch.positions.requires_grad();
        let energy = self.energy(&positions, batch)?;
        let options = BackwardOptions { create_graph: differentiable, ..BackwardOptions::default() };
        let slope = grad(&energy.sum_all()?, &[&positions], &options)?.into_iter().next().flatten();
        match slope {
            Some(slope) => Ok((slope.neg()?, energy)),
            None => Err(Error::Argument {
                operation: "ForceField::forces",
                argument: "batch",
                actual: "an energy that no position changes".to_owned(),
                expected: "at least one layer and two particles".to_owned(),
            }),
        }
    }

    /// Mean squared error of the forces over coordinates, particles and systems.
    ///
    /// # Errors
    /// As [`forces`](Self::forces).
    pub fn loss(&self, batch: &NBodyBatch, forces: &Tensor) -> Result<Tensor> {
        loss::mean_squared_error(&self.forces(batch, true)?.0, forces)
    }
}
