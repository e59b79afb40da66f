//! A potential of molecules and crystals: an energy of atoms, and its exact derivatives.

use super::{core_repulsion, track_field::TrackRound};
use crate::{
    data::atoms::{AtomBatch, AtomSet, Frame, Labels, SPECIES, Vector, elements::listed},
    tracks::{RadialBasis, Rank, TrackSize, Tracks},
};
use gradewise_autograd::{BackwardOptions, Tensor, grad};
use gradewise_kernels::{Array, DType};
use gradewise_nn::{
    DeepClone, Error, Module, Parameter, Placement, Result,
    data::{Samples, for_each_batch},
    layers::{Activation, Embedding, Layer, Linear, Sequential},
};
use serde::{Deserialize, Serialize};

const OPERATION: &str = "Potential";
/// Standard deviation of the initial weights of the readout, so that energies start small.
const READOUT: f64 = 0.1;
/// Atoms of a batch that is evaluated.
const EVALUATED: usize = 512;

gradewise_nn::choices! {
    /// What keeps atoms apart where there are no training frames.
    pub enum CoreRepulsion {
        /// Nothing
        None = "none",
        /// The screened repulsion of nuclei after Ziegler, Biersack and Littmark, within the sum of covalent radii
        Zbl = "zbl",
    }
}

/// Sizes of the model, and what counts in its loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PotentialConfig {
    /// Multivector features of an atom.
    pub hidden: usize,
    /// Rounds of messages.
    pub layers: usize,
    /// Radial functions.
    pub radial: usize,
    /// Beyond this distance, in Å, atoms send no messages.
    pub cutoff: f64,
    /// The highest rank of the symmetric traceless tensors of features: 1 for multivectors alone, 2 or 3.
    pub rank: Rank,
    /// What is added to the learned energy where atoms are nearer than bound ones.
    pub repulsion: CoreRepulsion,
    /// Weight of the squared error of energies for an atom, in eV, beside that of forces, in eV/Å.
    pub energy_weight: f64,
    /// Weight of the squared error of volume times stress for an atom, in eV.
    pub stress_weight: f64,
}

impl Default for PotentialConfig {
    fn default() -> Self {
        Self {
            hidden: 16,
            layers: 2,
            radial: 8,
            cutoff: 5.0,
            rank: Rank::Two,
            repulsion: CoreRepulsion::None,
            energy_weight: 10.0,
            stress_weight: 1.0,
        }
    }
}

/// The energy of atoms: the sum of a reference energy for the species of each and a learned function of its surroundings within the cutoff,
/// in eV.
///
/// An atom starts as scalars, from its species. In each round it receives sums over its neighbours of radial functions times products of
/// directions with their features ([`TrackMessages`](crate::tracks::TrackMessages)), and is updated by two products of its features
/// with these sums, which makes them sums over triples and more of atoms (the atomic cluster expansion; Batatia et al. 2022,
/// arXiv:2206.07697). Radial functions are Bessel functions under an envelope whose first two derivatives vanish at the cutoff
/// ([`RadialBasis`]). No product is normalised, so that the energy is a smooth function, and that of two distant systems is the sum of
/// both.
///
/// Forces and stresses are its exact derivatives. Parameters `reference` `[119, 1]` (eV), `known` `[119, 1]` and `scale` `[1]` follow from
/// the training frames ([`calibrate`](Self::calibrate)) and are not trained.
#[derive(Module, DeepClone)]
pub struct Potential {
    #[module(skip)]
    config: PotentialConfig,
    #[module(skip)]
    basis: RadialBasis,
    embedding: Embedding,
    layers: Vec<TrackRound>,
    readout: Sequential,
    linear: Vec<Linear>,
    reference: Parameter,
    known: Parameter,
    scale: Parameter,
}

/// What a batch gives.
pub(crate) struct Outputs {
    /// `[frames]`: energies less reference energies.
    pub energy: Tensor,
    /// `[3, atoms, 1]`
    pub forces: Tensor,
    /// `[9, frames, 1]`: volume times stress.
    pub virial: Tensor,
}

impl Potential {
    /// Draws the parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] for a dtype of 16 bits, in which energies would lose all digits; no memory; invalid sizes.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &PotentialConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        if placement.dtype.is_short() {
            return Err(refused(
                "dtype",
                placement.dtype.to_string(),
                "f32 or f64: differences of energies need their digits",
            ));
        }
        let (rounds, channels) = (config.layers, config.hidden);
        let size = TrackSize { channels, rank: config.rank };
        let basis = RadialBasis::new(config.radial, config.cutoff)?;
        let round = |index| TrackRound::init(size, (index, rounds), &basis, placement, rng);
        let layers = (0..rounds).map(round).collect::<Result<_>>()?;
        let zeros = |value: f64, entries: usize| -> Result<Parameter> {
            let shape = if entries == 1 { vec![1] } else { vec![entries, 1] };
            Ok(Parameter::frozen(placement.tensor(&vec![value; entries], shape)?.array().clone()))
        };
        Ok(Self {
            config: *config,
            embedding: Embedding::new(SPECIES, channels).init(placement, rng)?,
            layers,
            readout: Sequential::new()
                .then(Linear::new(channels, channels).init(placement, rng)?)
                .then(Activation::Silu)
                .then(Linear::new(channels, 1).bias(false).deviation(READOUT).init(placement, rng)?),
            linear: (0..rounds)
                .map(|_| Linear::new(channels, 1).bias(false).deviation(READOUT).init(placement, rng))
                .collect::<Result<_>>()?,
            reference: zeros(0.0, SPECIES)?,
            known: zeros(0.0, SPECIES)?,
            scale: zeros(1.0, 1)?,
            basis,
        })
    }

    /// Takes over from the training frames what follows from them without training: reference energies, the species that occur, and the
    /// size of forces as the scale of the learned part.
    ///
    /// # Errors
    /// From the device.
    pub fn calibrate(&self, frames: &AtomSet) -> Result<()> {
        let mut known = vec![0.0; SPECIES];
        frames.species().into_iter().for_each(|number| known[usize::from(number)] = 1.0);
        for (parameter, values) in [
            (&self.reference, frames.reference()),
            (&self.known, &known),
            (&self.scale, &[frames.force_scale()]),
        ] {
            let old = parameter.array();
            parameter.set(Array::from_f64(values, old.dims(), old.dtype(), &old.device())?)?;
        }
        Ok(())
    }

    /// The sizes.
    pub fn config(&self) -> &PotentialConfig {
        &self.config
    }

    /// Refuses species that no training frame had, whose features would be random. A model that was never
    /// [calibrated](Self::calibrate) knows none, and refuses none.
    ///
    /// # Errors
    /// [`Error::Argument`] that names them.
    pub fn require_species(&self, species: &[u8]) -> Result<()> {
        let known = self.known.array().to_f64_vec()?;
        let is_known = |number: &u8| known[usize::from(*number)] > 0.0;
        let unknown: Vec<u8> = species.iter().copied().filter(|number| !is_known(number)).collect();
        let all: Vec<u8> = (1..SPECIES as u8).filter(is_known).collect();
        if unknown.is_empty() || all.is_empty() {
            return Ok(());
        }
        Err(refused(
            "species",
            listed(unknown),
            &format!("{}, which were in the training frames; train on frames with the others", listed(all)),
        ))
    }

    /// Energies `[frames]` less reference energies, in eV, for vectors of edges `[3, edges, 1]`.
    ///
    /// # Errors
    /// As [`atomic_energies`](Self::atomic_energies).
    pub fn energy(&self, differences: &Tensor, batch: &AtomBatch) -> Result<Tensor> {
        let energies = self.atomic_energies(differences, batch)?;
        Ok(energies.segment_sum(1, &batch.of_atom)?.reshape([batch.frames])?)
    }

    /// The share of each atom in the energies less reference energies, `[1, atoms, 1]`, in eV, for vectors of edges `[3, edges, 1]`.
    ///
    /// # Errors
    /// [`Error::Argument`] for neighbours that were sought less far than the cutoff; a batch of another dtype or device.
    pub fn atomic_energies(&self, differences: &Tensor, batch: &AtomBatch) -> Result<Tensor> {
        if batch.cutoff < self.config.cutoff {
            return Err(refused(
                "cutoff",
                format!("{} Å, with neighbours up to {} Å", self.config.cutoff, batch.cutoff),
                &format!("neighbours up to the cutoff: set data.cutoff={}", self.config.cutoff),
            ));
        }
        let atoms = batch.atoms();
        let radial = self.basis.forward(differences)?;
        let mut h =
            Tracks::of_scalars(&self.embedding.forward(&batch.species, [1, atoms])?, self.config.rank)?;
        let mut energies: Option<Tensor> = None;
        for (round, linear) in self.layers.iter().zip(&self.linear) {
            h = round.forward(&h, &radial, &batch.edges)?;
            let own = linear.forward(&h.scalars()?)?;
            energies = Some(match energies {
                Some(sum) => sum.add(&own)?,
                None => own,
            });
        }
        let last = self.readout.forward(&h.scalars()?)?;
        let energies = match energies {
            Some(sum) => sum.add(&last)?,
            None => last,
        };
        let learned = energies.mul(&self.scale.tensor())?;
        match self.config.repulsion {
            CoreRepulsion::None => Ok(learned),
            CoreRepulsion::Zbl => {
                Ok(learned.add(&core_repulsion::zbl(differences, batch, self.config.cutoff)?)?)
            }
        }
    }

    /// Energies, forces and virials for vectors of edges `[3, edges, 1]`. With `differentiable`, losses of all of them have gradients by the
    /// parameters.
    pub(crate) fn outputs(
        &self,
        differences: &Tensor,
        batch: &AtomBatch,
        differentiable: bool,
    ) -> Result<Outputs> {
        let vectors = differences.detach();
        let differences = vectors.requires_grad();
        let energy = self.energy(&differences, batch)?;
        let options = BackwardOptions { create_graph: differentiable, ..BackwardOptions::default() };
        let slope = match batch.edge_count() {
            0 => None,
            _ => grad(&energy.sum_all()?, &[&differences], &options)?.into_iter().next().flatten(),
        };
        // Atoms without neighbours have no forces.
        let slope = match slope {
            Some(slope) => slope,
            None => Tensor::zeros(differences.shape(), differences.dtype(), &differences.device())?,
        };
        // The vector of an edge is x(sender) − x(receiver): the energy's slope pulls the receiver, and pushes the sender.
        let forces = slope.net_inflow(&batch.edges.receivers, &batch.edges.senders)?;
        let edges = batch.edge_count();
        let outer = slope
            .reshape([3, 1, edges, 1])?
            .mul(&vectors.reshape([1, 3, edges, 1])?)?
            .reshape([9, edges, 1])?;
        Ok(Outputs { energy, forces, virial: outer.segment_sum(1, &batch.of_edge)? })
    }

    /// The loss: the mean squared error of forces, plus those of energies and of volume times stress, both for an atom, with their
    /// weights; in units of the mean square of the training forces.
    ///
    /// # Errors
    /// As [`energy`](Self::energy).
    pub fn loss(&self, batch: &AtomBatch) -> Result<Tensor> {
        let of = &batch.targets;
        let outputs = self.outputs(&batch.differences, batch, true)?;
        // Zero where reference energies are those that the frames were read with.
        let shift = self.reference.tensor().sub(&of.reference)?.index_select(0, &batch.species)?;
        let shift = shift.segment_sum(0, &batch.of_atom)?.reshape([batch.frames])?;
        let energy = outputs.energy.add(&shift)?.sub(&of.energy)?.mul(&of.per_atom)?;
        let forces = outputs.forces.sub(&of.forces)?.mul(&of.force_weights)?;
        let mut loss = forces.square()?.mean_all()?;
        loss = loss.add(&energy.square()?.mean_all()?.mul_scalar(self.config.energy_weight)?)?;
        if self.config.stress_weight > 0.0 {
            let virial = outputs.virial.sub(&of.virial)?.mul(&of.virial_weights)?;
            loss = loss.add(&virial.square()?.mean_all()?.mul_scalar(self.config.stress_weight)?)?;
        }
        Ok(loss.mul(&self.scale.tensor().square()?.recip()?.reshape(loss.shape())?)?)
    }

    /// Energies, forces and stresses of frames, in their order; stresses of those that repeat in three directions.
    ///
    /// # Errors
    /// As [`energy`](Self::energy) and [`require_species`](Self::require_species).
    pub fn predict(&self, set: &AtomSet, placement: &Placement) -> Result<Vec<Labels>> {
        let found = self.predict_with_strain(set, placement)?;
        Ok(found.into_iter().map(|(labels, _)| labels).collect())
    }

    /// As [`predict`](Self::predict), each with the derivative of its energy by the strain of all its positions and cell vectors, in eV: volume
    /// times stress where there is a stress, and minus the virial of mechanics everywhere.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_with_strain(
        &self,
        set: &AtomSet,
        placement: &Placement,
    ) -> Result<Vec<(Labels, [Vector; 3])>> {
        self.require_species(&set.species())?;
        let reference = self.reference.array().to_f64_vec()?;
        let atoms = set.frames().iter().map(|one| one.frame.len()).max().unwrap_or(1).max(1);
        let mut found = Vec::with_capacity(set.len());
        for_each_batch(set, (EVALUATED / atoms).max(1), placement, |batch| {
            let outputs = self.outputs(&batch.differences, batch, false)?;
            let [energies, forces, virials] =
                [&outputs.energy, &outputs.forces, &outputs.virial].map(|tensor| tensor.array().to_f64_vec());
            let (energies, forces, virials) = (energies?, forces?, virials?);
            let (atoms, mut first) = (batch.atoms(), 0);
            for (at, &energy) in energies.iter().enumerate() {
                let frame = &set.frames()[found.len()].frame;
                let own = first..first + frame.len();
                first = own.end;
                let of = |a: usize, b: usize| virials[(3 * a + b) * batch.frames + at];
                let strain: [Vector; 3] =
                    std::array::from_fn(|a| std::array::from_fn(|b| (of(a, b) + of(b, a)) / 2.0));
                let whole = frame.cell.filter(|_| frame.repeats_in_space());
                let stress = whole.map(|cell| strain.map(|row| row.map(|x| x / cell.volume())));
                let labels = Labels {
                    energy: energy + frame.numbers.iter().map(|&z| reference[usize::from(z)]).sum::<f64>(),
                    forces: own.map(|atom| [0, 1, 2].map(|axis| forces[axis * atoms + atom])).collect(),
                    stress,
                };
                found.push((labels, strain));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The sum of the reference energies of a frame's atoms, in eV.
    ///
    /// # Errors
    /// From the device.
    pub fn reference_energy(&self, frame: &Frame) -> Result<f64> {
        let reference = self.reference.array().to_f64_vec()?;
        Ok(frame.numbers.iter().map(|&number| reference[usize::from(number)]).sum())
    }

    /// The dtype of the parameters.
    pub fn dtype(&self) -> DType {
        self.scale.array().dtype()
    }
}

fn refused(argument: &'static str, actual: String, expected: &str) -> Error {
    Error::Argument { operation: OPERATION, argument, actual, expected: expected.to_owned() }
}
