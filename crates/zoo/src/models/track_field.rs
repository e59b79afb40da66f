//! An energy from rounds of messages, with tensors of a rank.

use crate::{
    data::nbody::NBodyBatch,
    tracks::{
        Radial, RadialBasis, Rank, TrackGate, TrackLinear, TrackMessages, TrackProduct, TrackSize, Tracks,
    },
};
use gradewise_autograd::Tensor;
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    data::Edges,
    layers::{Activation, Layer, Linear, Sequential},
};

/// Standard deviation of the initial weights of the readout, so that energies start small.
const READOUT: f64 = 0.1;

/// Energies from distances and directions within a cutoff. Nodes start as scalars, from their charges; in each round a node receives
/// [`TrackMessages`] and is updated by two products of its features with the messages. The energy of a node is a function of its scalars.
///
/// Products are polynomials without normalisation, as in many-body expansions of potentials (Batatia et al. 2022, arXiv:2206.07697). One
/// round with tensors spans every invariant of degree 4 of sums over neighbours of spherical functions of degree 2.
#[derive(Module, DeepClone)]
pub struct TrackField {
    #[module(skip)]
    basis: RadialBasis,
    #[module(skip)]
    rank: Rank,
    embedding: Linear,
    layers: Vec<TrackRound>,
    readout: Sequential,
    linear: Linear,
}

/// A round: messages, and two products of the features with them.
#[derive(Module, DeepClone)]
pub(super) struct TrackRound {
    messages: TrackMessages,
    join: TrackLinear,
    first: TrackProduct,
    gate: TrackGate,
    second: TrackProduct,
}

impl TrackRound {
    /// Draws the parameters of the round `index` of `rounds`. The first one has scalars alone, and the last one computes no tensors, because
    /// energies depend on scalars alone.
    pub(super) fn init<R: rand::Rng + ?Sized>(
        size: TrackSize,
        (index, rounds): (usize, usize),
        basis: &RadialBasis,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self {
            messages: TrackMessages::init(size, index == 0, basis, placement, rng)?,
            join: TrackLinear::init(2 * size.channels, size, true, placement, rng)?,
            first: TrackProduct::init(size, placement, rng)?,
            gate: TrackGate::init(size, placement)?,
            second: match index + 1 == rounds {
                true => TrackProduct::without_tensors(size, placement, rng)?,
                false => TrackProduct::init(size, placement, rng)?,
            },
        })
    }

    /// New features of the nodes.
    pub(super) fn forward(&self, h: &Tracks, radial: &Radial, edges: &Edges) -> Result<Tracks> {
        let received = self.messages.forward(h, radial, edges)?;
        let joined = self.join.forward(&h.join(&received)?)?;
        let change = self.second.forward(&self.gate.forward(&self.first.forward(&joined)?)?)?;
        match change.tensors {
            None => h.without_tensors().add(&change),
            Some(_) => h.add(&change),
        }
    }
}

impl TrackField {
    /// Draws the parameters of `rounds` rounds.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        size: TrackSize,
        rounds: usize,
        basis: RadialBasis,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, channels) = (&placement.into(), size.channels);
        let round =
            |index: usize, rng: &mut R| TrackRound::init(size, (index, rounds), &basis, placement, rng);
        Ok(Self {
            rank: size.rank,
            embedding: Linear::new(1, channels).init(placement, rng)?,
            layers: (0..rounds).map(|index| round(index, rng)).collect::<Result<_>>()?,
            readout: Sequential::new()
                .then(Linear::new(channels, channels).init(placement, rng)?)
                .then(Activation::Silu)
                .then(Linear::new(channels, 1).bias(false).deviation(READOUT).init(placement, rng)?),
            linear: Linear::new(channels, 1).bias(false).deviation(READOUT).init(placement, rng)?,
            basis,
        })
    }

    /// Energies `[systems]` of the charges of `batch` at `positions` `[3, systems × particles]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn energy(&self, positions: &Tensor, batch: &NBodyBatch) -> Result<Tensor> {
        let nodes = batch.systems * batch.particles;
        let (edges, points) = (&batch.edges, positions.reshape([3, nodes, 1])?);
        // Vectors from the receiver to the sender.
        let differences = points.edge_difference(None, &edges.receivers, &edges.senders)?.neg()?;
        let radial = self.basis.forward(&differences)?;
        let charges = batch.features.slice(0, 0..1)?.slice(2, 0..1)?;
        let mut h = Tracks::of_scalars(&self.embedding.forward(&charges)?, self.rank)?;
        for round in &self.layers {
            h = round.forward(&h, &radial, edges)?;
        }
        let scalars = h.scalars()?;
        let energies = self.readout.forward(&scalars)?.add(&self.linear.forward(&scalars)?)?;
        Ok(energies.reshape([batch.systems, batch.particles])?.sum(&[1], false)?)
    }
}
