//! Frames of different sizes as one graph.

use super::{AtomSet, Neighbourhood, Vector, reference::SPECIES};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Device, Index};
use gradewise_nn::{
    Placement, Result,
    data::{Batch, Edges, Samples, overwrite, scaled, to_device},
};

/// Frames as one graph: atoms one frame after another, and the pairs of neighbours as edges.
#[derive(Clone, Debug)]
pub struct AtomBatch {
    /// Number of frames.
    pub frames: usize,
    /// How far neighbours were sought, in Å.
    pub cutoff: f64,
    /// The atomic number of each atom; the bound is [`SPECIES`].
    pub species: Index,
    /// The frame of each atom.
    pub of_atom: Index,
    /// The frame of each edge.
    pub of_edge: Index,
    /// Pairs within the cutoff.
    pub edges: Edges,
    /// `[3, edges, 1]`: vectors from receiver to sender, in Å.
    pub differences: Tensor,
    /// What is to be learned.
    pub targets: AtomTargets,
}

/// Energies, forces and stresses of a batch. Where a frame lacks one, it is zero, and so is its weight.
#[derive(Clone, Debug)]
pub struct AtomTargets {
    /// `[frames]`: energies less the reference energies of the atoms, in eV.
    pub energy: Tensor,
    /// `[SPECIES, 1]`: the reference energies that were subtracted, in eV.
    pub reference: Tensor,
    /// `[frames]`: one over the number of atoms; zero without an energy.
    pub per_atom: Tensor,
    /// `[3, atoms, 1]`: forces, in eV/Å.
    pub forces: Tensor,
    /// `[1, atoms, 1]`: one if there is a force.
    pub force_weights: Tensor,
    /// `[9, frames, 1]`: volume times stress, row by row, in eV; its weights `[1, frames, 1]` are one over the number of atoms, or zero.
    pub virial: Tensor,
    /// See [`virial`](Self::virial).
    pub virial_weights: Tensor,
}

impl AtomBatch {
    /// A batch of some frames whose neighbours were sought up to `cutoff` (Å); `reference` are the energies of species to subtract. If
    /// there are fewer than `least` edges, edges longer than the cutoff fill up, which have no effect: batches of one size can be captured.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn new<'a>(
        frames: impl Iterator<Item = &'a Neighbourhood> + Clone,
        cutoff: f64,
        reference: &[f64],
        least: usize,
        place: &Placement,
    ) -> Result<Self> {
        let count = frames.clone().count();
        let (mut species, mut of_atom, mut of_edge) = (Vec::new(), Vec::new(), Vec::new());
        let (mut receivers, mut senders, mut differences) = (Vec::new(), Vec::new(), Vec::new());
        let (mut energy, mut per_atom, mut forces, mut force_weights) =
            (vec![0.0; count], vec![0.0; count], Vec::new(), Vec::new());
        let (mut virial, mut virial_weights) = (vec![0.0; 9 * count], vec![0.0; count]);
        for (at, Neighbourhood { frame, neighbours, differences: vectors }) in frames.enumerate() {
            let first = species.len();
            species.extend(frame.numbers.iter().map(|&number| usize::from(number)));
            of_atom.resize(species.len(), at);
            receivers.extend(neighbours.receivers.iter().map(|&atom| first + atom as usize));
            senders.extend(neighbours.senders.iter().map(|&atom| first + atom as usize));
            of_edge.resize(receivers.len(), at);
            differences.extend_from_slice(vectors);
            let share = 1.0 / frame.len().max(1) as f64;
            if let Some(whole) = frame.energy {
                energy[at] = whole - frame.numbers.iter().map(|&z| reference[usize::from(z)]).sum::<f64>();
                per_atom[at] = share;
            }
            match &frame.forces {
                Some(some) => forces.extend_from_slice(some),
                None => forces.resize(species.len(), [0.0; 3]),
            }
            force_weights.resize(species.len(), f64::from(u8::from(frame.forces.is_some())));
            if let (Some(stress), Some(cell)) = (&frame.stress, frame.repeating()) {
                for (k, x) in stress.as_flattened().iter().enumerate() {
                    virial[k * count + at] = x * cell.volume();
                }
                virial_weights[at] = share;
            }
        }
        let atoms = species.len();
        if atoms > 0 && receivers.len() < least {
            receivers.resize(least, atoms - 1);
            senders.resize(least, atoms - 1);
            of_edge.resize(least, count - 1);
            differences.resize(least, [2.0 * cutoff, 0.0, 0.0]);
        }
        let edges = receivers.len();
        let index = |values: &[usize], bound: usize| Index::new(values, bound, &place.device);
        Ok(Self {
            frames: count,
            cutoff,
            species: index(&species, SPECIES)?,
            of_atom: index(&of_atom, count)?,
            of_edge: index(&of_edge, count)?,
            edges: Edges { receivers: index(&receivers, atoms)?, senders: index(&senders, atoms)? },
            differences: place.tensor(&by_axis(&differences), [3, edges, 1])?,
            targets: AtomTargets {
                energy: place.tensor(&energy, [count])?,
                reference: place.tensor(reference, [SPECIES, 1])?,
                per_atom: place.tensor(&per_atom, [count])?,
                forces: place.tensor(&by_axis(&forces), [3, atoms, 1])?,
                force_weights: place.tensor(&force_weights, [1, atoms, 1])?,
                virial: place.tensor(&virial, [9, count, 1])?,
                virial_weights: place.tensor(&virial_weights, [1, count, 1])?,
            },
        })
    }

    /// Number of atoms.
    pub fn atoms(&self) -> usize {
        self.species.len()
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.of_edge.len()
    }
}

/// Vectors as three rows, one for each axis.
fn by_axis(vectors: &[Vector]) -> Vec<f64> {
    (0..3).flat_map(|axis| vectors.iter().map(move |vector| vector[axis])).collect()
}

impl Samples for AtomSet {
    type Batch = AtomBatch;

    fn len(&self) -> usize {
        self.frames.len()
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<AtomBatch> {
        let frames = indices.iter().map(|&index| &self.frames[index]);
        AtomBatch::new(frames, self.cutoff, &self.reference, indices.len() * self.edges, placement)
    }
}

impl AtomTargets {
    fn tensors(&self) -> [&Tensor; 7] {
        let Self { energy, reference, per_atom, forces, force_weights, virial, virial_weights } = self;
        [energy, reference, per_atom, forces, force_weights, virial, virial_weights]
    }
}

impl Batch for AtomBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        let of = &self.targets;
        Ok(Self {
            frames: self.frames,
            cutoff: self.cutoff,
            species: self.species.to_device(device)?,
            of_atom: self.of_atom.to_device(device)?,
            of_edge: self.of_edge.to_device(device)?,
            edges: self.edges.to_device(device)?,
            differences: to_device(&self.differences, device)?,
            targets: AtomTargets {
                energy: to_device(&of.energy, device)?,
                reference: to_device(&of.reference, device)?,
                per_atom: to_device(&of.per_atom, device)?,
                forces: to_device(&of.forces, device)?,
                force_weights: to_device(&of.force_weights, device)?,
                virial: to_device(&of.virial, device)?,
                virial_weights: to_device(&of.virial_weights, device)?,
            },
        })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        let same = [
            (&self.species, &source.species),
            (&self.of_atom, &source.of_atom),
            (&self.of_edge, &source.of_edge),
            (&self.edges.receivers, &source.edges.receivers),
            (&self.edges.senders, &source.edges.senders),
        ];
        if self.cutoff != source.cutoff
            || same.iter().any(|(own, other)| own.len() != other.len() || own.bound() != other.bound())
        {
            return Ok(false);
        }
        let pairs = self.targets.tensors().into_iter().zip(source.targets.tensors());
        let pairs: Vec<(&Tensor, &Tensor)> =
            pairs.chain([(&self.differences, &source.differences)]).collect();
        // Captured work may rely on how the old indices fall into parts; it is captured again where the new ones do not.
        for (own, other) in same {
            if !own.overwrite(other)? {
                return Ok(false);
            }
        }
        overwrite(&pairs)
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some(Self { differences: scaled(&self.differences, factor)?, ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::atoms::Frame;
    use gradewise_kernels::DType;

    /// As an index does whose parts captured work relies on, where the new indices do not fall into them.
    #[test]
    fn a_batch_is_not_overwritten_where_an_index_refuses_the_new_values() {
        let frame = |x: f64| Frame {
            numbers: vec![1, 8],
            positions: vec![[0.0; 3], [x, 0.0, 0.0]],
            ..Frame::default()
        };
        let place = Placement::new(&Device::Cpu, DType::F64);
        let batch = |x: f64| -> AtomBatch {
            let one = Neighbourhood::find(frame(x), 3.0).unwrap();
            AtomBatch::new(std::iter::once(&one), 3.0, &[0.0; SPECIES], 4, &place).unwrap()
        };
        let (fixed, mut own) = (batch(1.0), batch(1.0));
        own.edges.senders = Index::constant(&fixed.edges.senders.to_vec().unwrap(), 2, &Device::Cpu).unwrap();
        assert!(!own.overwrite(&batch(1.5)).unwrap());
    }
}
