//! A force field: an energy that is invariant under the motions of space, and forces as its negative gradient.

use super::{MessagePassing, TrackField};
use crate::{
    data::nbody::NBodyBatch,
    tracks::{RadialBasis, Rank, TrackSize},
};
use gradewise_autograd::{BackwardOptions, Tensor, concat, grad};
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    DeepClone, Error, Module, Placement, Result, Visitor,
    layers::{Layer, MvLinear},
    loss,
};
use serde::{Deserialize, Serialize};

gradewise_nn::choices! {
    /// The kind of model of the energy.
    pub enum ForceFieldKind {
        /// Messages between all pairs in Cl(3,0)
        Messages = "messages",
        /// Sums over neighbours of scalars and vectors, and products of them
        Vectors = "vectors",
        /// The same with symmetric traceless tensors of rank 2
        Tensors = "tensors",
    }
}

/// Sizes of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForceFieldConfig {
    /// Which model.
    pub kind: ForceFieldKind,
    /// Multivector features per particle.
    pub hidden: usize,
    /// Rounds of messages.
    pub layers: usize,
    /// Radial functions; only for `vectors` and `tensors`.
    pub radial: usize,
    /// Beyond this distance particles do not interact; only for `vectors` and `tensors`.
    pub cutoff: f64,
}

impl Default for ForceFieldConfig {
    fn default() -> Self {
        Self { kind: ForceFieldKind::Messages, hidden: 12, layers: 2, radial: 8, cutoff: 3.0 }
    }
}

/// A model of an energy.
#[derive(DeepClone)]
pub enum ForceField {
    /// Messages between all pairs.
    Messages(MessageField),
    /// Sums over neighbours, with or without tensors of rank 2.
    Tracks(TrackField),
}

impl Module for ForceField {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Messages(model) => model.visit(visitor),
            Self::Tracks(model) => model.visit(visitor),
        }
    }
}

impl ForceField {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory; invalid sizes.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &ForceFieldConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let rank = match config.kind {
            ForceFieldKind::Messages => {
                return Ok(Self::Messages(MessageField::init(config, placement, rng)?));
            }
            ForceFieldKind::Vectors => Rank::One,
            ForceFieldKind::Tensors => Rank::Two,
        };
        let size = TrackSize { channels: config.hidden, rank };
        let basis = RadialBasis::new(config.radial, config.cutoff)?;
        Ok(Self::Tracks(TrackField::init(size, config.layers, basis, placement, rng)?))
    }

    /// Energies `[systems]` of the charges of `batch` at `positions` `[3, systems × particles]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn energy(&self, positions: &Tensor, batch: &NBodyBatch) -> Result<Tensor> {
        match self {
            Self::Messages(model) => model.energy(positions, batch),
            Self::Tracks(model) => model.energy(positions, batch),
        }
    }

    /// Forces `[3, systems × particles]` and energies `[systems]`. With `differentiable`, a loss on the forces has gradients with respect
    /// to the parameters, by differentiating through the backward pass.
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

/// Input channels: the charge as a scalar, and the position as a vector.
const CHANNELS: usize = 2;

/// The energy of charged particles: rounds of messages in Cl(3,0) as in the n-body model of Ruhe et al. (2023, arXiv:2305.11141); the sum
/// over particles of the scalar part of the last features is the energy. Forces are exactly its negative gradient, so their dynamics
/// conserves it.
#[derive(Module, DeepClone)]
pub struct MessageField {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    projection: MvLinear,
}

impl MessageField {
    fn init<R: rand::Rng + ?Sized>(
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

    fn energy(&self, positions: &Tensor, batch: &NBodyBatch) -> Result<Tensor> {
        let (systems, particles) = (batch.systems, batch.particles);
        let nodes = systems * particles;
        // Positions relative to the centre of each system make the energy invariant under translations.
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
}
