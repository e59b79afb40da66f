//! Jets with their class, and batches of them.

use super::shower::{FourMomentum, one_prong, smeared, three_prong};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Error, Placement, Result,
    data::{Batch, Edges, Samples, Split, check_finite, overwrite, scaled, to_device},
    symmetry::Isometry,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

pub(super) const OPERATION: &str = "jets";
/// Added to products of momenta of neighbours, in units of the squared mass of the jet, before their logarithm is taken.
const SMALLEST_PRODUCT: f64 = 1e-6;
/// Blades of the space-time algebra.
const BLADES: usize = 16;

/// Jets as rows of four-momenta, each with its class: 1 for three prongs, 0 for one.
#[derive(Clone, PartialEq, Debug)]
pub struct JetSets {
    particles: usize,
    /// `[jets, particles, 4]`, zero where a jet has fewer particles.
    momenta: Vec<f64>,
    labels: Vec<bool>,
}

impl JetSets {
    /// Jets from row-major `momenta` `[jets, particles, 4]` (E, px, py, pz), zero where a jet has fewer particles.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree, or for a jet whose total momentum is not time-like; [`Error::NotFinite`].
    pub fn new(particles: usize, momenta: Vec<f64>, labels: Vec<bool>) -> Result<Self> {
        if particles == 0 || momenta.len() != labels.len() * particles * 4 {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "momenta",
                actual: format!("{} numbers", momenta.len()),
                expected: format!("{} jets of {particles} particles of 4, neither 0", labels.len()),
            });
        }
        check_finite(OPERATION, "momenta", &[labels.len(), particles, 4], &momenta)?;
        let jets = Self { particles, momenta, labels };
        if let Some(bad) = (0..jets.labels.len()).find(|&jet| jets.total(jet).dot(&jets.total(jet)) <= 0.0) {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "momenta",
                actual: format!("jet {bad} has the total momentum {:?}", jets.total(bad).0),
                expected: "a positive squared mass: at least two particles that do not fly in parallel"
                    .to_owned(),
            });
        }
        Ok(jets)
    }

    /// Jets of both classes with equal probability, the `particles` of largest transverse momentum of each, with an error of
    /// measurement. Jet `i` depends only on `(seed, split, i)`, and on `particles`.
    ///
    /// # Errors
    /// [`Error::Argument`] for fewer than two particles.
    pub fn simulate(jets: usize, particles: usize, seed: u64, split: Split) -> Result<Self> {
        if particles < 2 {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "particles",
                actual: particles.to_string(),
                expected: "at least 2".to_owned(),
            });
        }
        let mut momenta = vec![0.0; jets * particles * 4];
        let draw = |(index, row): (usize, &mut [f64])| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // 2⁵⁶ jets per split before two streams could meet.
            rng.set_stream(((split as u64 + 1) << 56) | index as u64);
            let label = rng.random();
            let exact = if label { three_prong(&mut rng) } else { one_prong(&mut rng) };
            let mut seen: Vec<FourMomentum> =
                exact.iter().map(|particle| smeared(particle, &mut rng)).collect();
            seen.sort_by(|a, b| b.transverse().total_cmp(&a.transverse()));
            for (slot, particle) in row.chunks_exact_mut(4).zip(seen) {
                slot.copy_from_slice(&particle.0);
            }
            label
        };
        let labels = momenta.par_chunks_exact_mut(particles * 4).enumerate().map(draw).collect();
        Self::new(particles, momenta, labels)
    }

    /// The first `jets` jets, or all if there are fewer.
    #[must_use]
    pub fn take(mut self, jets: usize) -> Self {
        self.momenta.truncate(jets * self.particles * 4);
        self.labels.truncate(jets);
        self
    }

    /// Four-momenta, `[jets, particles, 4]`.
    pub fn momenta(&self) -> &[f64] {
        &self.momenta
    }

    /// Which jets have three prongs.
    pub fn labels(&self) -> &[bool] {
        &self.labels
    }

    /// Applies a Lorentz transformation to the jets.
    ///
    /// # Errors
    /// [`Error::Argument`] for an isometry of another dimension.
    pub fn moved(mut self, isometry: &Isometry) -> Result<Self> {
        isometry.apply_all(&mut self.momenta)?;
        Ok(self)
    }

    fn particle(&self, jet: usize, particle: usize) -> FourMomentum {
        let start = (jet * self.particles + particle) * 4;
        FourMomentum(std::array::from_fn(|axis| self.momenta[start + axis]))
    }

    fn total(&self, jet: usize) -> FourMomentum {
        (0..self.particles)
            .fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(&self.particle(jet, particle)))
    }
}

/// A batch of jets in the layout of models in the space-time algebra.
#[derive(Clone, Debug)]
pub struct JetBatch {
    /// `[16, jets × particles, 4]`: as vectors, the momentum of the particle and of the jet in units of the jet's mass; as scalars,
    /// the energy of the particle in the rest frame of the jet, and the logarithm of the jet's mass.
    pub features: Tensor,
    /// `[16, edges, 1]`: the logarithm of the product of the momenta, as a scalar.
    pub attributes: Tensor,
    /// `[1, jets × particles, 1]`: one over the number of particles of the jet; zero for padding.
    pub particle_weights: Tensor,
    /// `[1, edges, 1]`: one over the number of neighbours of the receiver; zero if sender or receiver is padding.
    pub edge_weights: Tensor,
    /// Every ordered pair of particles of a jet.
    pub edges: Edges,
    /// `[jets, 2]`: the class, one-hot.
    pub target: Tensor,
    /// Number of jets.
    pub jets: usize,
}

/// Channels of [`JetBatch::features`].
pub(crate) const CHANNELS: usize = 4;

impl Samples for JetSets {
    type Batch = JetBatch;

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<JetBatch> {
        let (particles, jets) = (self.particles, indices.len());
        let (nodes, edges) = (jets * particles, jets * particles * (particles - 1));
        let mut features = vec![0.0; BLADES * nodes * CHANNELS];
        let mut attributes = vec![0.0; BLADES * edges];
        let (mut particle_weights, mut edge_weights) = (vec![0.0; nodes], vec![0.0; edges]);
        let mut edge = 0;
        for (position, &jet) in indices.iter().enumerate() {
            let total = self.total(jet);
            let square = total.dot(&total);
            let mass = square.sqrt();
            let momenta: Vec<FourMomentum> =
                (0..particles).map(|particle| self.particle(jet, particle)).collect();
            let is_there: Vec<bool> = momenta.iter().map(|p| p.0 != [0.0; 4]).collect();
            let count = is_there.iter().filter(|&&there| there).count() as f64;
            for (receiver, momentum) in momenta.iter().enumerate() {
                if is_there[receiver] {
                    let node = position * particles + receiver;
                    particle_weights[node] = 1.0 / count;
                    features[node * CHANNELS + 2] = 2.0 * momentum.dot(&total) / square;
                    features[node * CHANNELS + 3] = (mass / 100.0).ln();
                    for axis in 0..4 {
                        let vector = ((1 + axis) * nodes + node) * CHANNELS;
                        features[vector] = momentum.0[axis] / mass;
                        features[vector + 1] = total.0[axis] / mass;
                    }
                }
                for sender in (0..particles).filter(|&sender| sender != receiver) {
                    if is_there[receiver] && is_there[sender] {
                        edge_weights[edge] = 1.0 / (count - 1.0);
                        let product = momentum.dot(&momenta[sender]).max(0.0) / square;
                        // Shifted and scaled to be of order one.
                        attributes[edge] = 0.25 * (product + SMALLEST_PRODUCT).ln() + 1.5;
                    }
                    edge += 1;
                }
            }
        }
        let target: Vec<f64> =
            indices.iter().flat_map(|&jet| if self.labels[jet] { [0.0, 1.0] } else { [1.0, 0.0] }).collect();
        let Placement { device, dtype } = placement;
        let tensor = |values: &[f64], shape: &[usize]| -> Result<Tensor> {
            Ok(Tensor::new(Array::from_f64(values, shape, *dtype, device)?))
        };
        Ok(JetBatch {
            features: tensor(&features, &[BLADES, nodes, CHANNELS])?,
            attributes: tensor(&attributes, &[BLADES, edges, 1])?,
            particle_weights: tensor(&particle_weights, &[1, nodes, 1])?,
            edge_weights: tensor(&edge_weights, &[1, edges, 1])?,
            edges: Edges::complete(jets, particles, device)?,
            target: tensor(&target, &[jets, 2])?,
            jets,
        })
    }
}

impl JetBatch {
    fn tensors(&self) -> [&Tensor; 5] {
        [&self.features, &self.attributes, &self.particle_weights, &self.edge_weights, &self.target]
    }
}

impl Batch for JetBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self {
            features: to_device(&self.features, device)?,
            attributes: to_device(&self.attributes, device)?,
            particle_weights: to_device(&self.particle_weights, device)?,
            edge_weights: to_device(&self.edge_weights, device)?,
            edges: self.edges.to_device(device)?,
            target: to_device(&self.target, device)?,
            jets: self.jets,
        })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        // Complete graphs of equal size have the same edges, so only tensors are copied.
        let pairs: Vec<(&Tensor, &Tensor)> = self.tensors().into_iter().zip(source.tensors()).collect();
        overwrite(&pairs)
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some(Self {
            features: scaled(&self.features, factor)?,
            attributes: scaled(&self.attributes, factor)?,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::Signature;
    use gradewise_kernels::DType;
    use gradewise_nn::symmetry::relative_distance;

    #[test]
    fn jets_have_both_classes_and_depend_on_their_number_alone() {
        let jets = JetSets::simulate(400, 12, 3, Split::Train).unwrap();
        let signal = jets.labels().iter().filter(|&&label| label).count();
        assert!((140..260).contains(&signal), "{signal}");
        assert_eq!(jets.clone().take(7), JetSets::simulate(7, 12, 3, Split::Train).unwrap());
        assert_ne!(jets.clone().take(7), JetSets::simulate(7, 12, 3, Split::Test).unwrap());
        assert!(JetSets::simulate(1, 1, 0, Split::Train).is_err());
        assert!(
            JetSets::new(2, vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], vec![true]).is_err(),
            "one particle"
        );
    }

    #[test]
    fn scalars_of_a_batch_do_not_change_under_boosts_and_vectors_do() {
        let jets = JetSets::simulate(5, 8, 1, Split::Valid).unwrap();
        let place = Placement::new(&Device::Cpu, DType::F64);
        let isometry = Isometry::random(Signature::STA, 4, &mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let moved = jets.clone().moved(&isometry).unwrap().batch(&[4, 1, 1], &place).unwrap();
        let plain = jets.batch(&[4, 1, 1], &place).unwrap();
        let values = |tensor: &Tensor| tensor.array().to_f64_vec().unwrap();
        let error = relative_distance(&values(&moved.attributes), &values(&plain.attributes));
        assert!(error < 1e-6, "{error:e}");
        let (a, b) = (values(&moved.features), values(&plain.features));
        let lane = 24 * CHANNELS;
        assert!(relative_distance(&a[..lane], &b[..lane]) < 1e-10, "scalars");
        assert!(relative_distance(&a[lane..5 * lane], &b[lane..5 * lane]) > 0.1, "vectors");
        let weights = values(&plain.particle_weights);
        assert!(weights.chunks_exact(8).all(|jet| (jet.iter().sum::<f64>() - 1.0).abs() < 1e-12));
        assert!(values(&plain.edge_weights).iter().all(|weight| weight.is_finite()));
    }
}
