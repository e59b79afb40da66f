//! Batches of jets, as the models take them.

use super::{FourMomentum, JetSets};
use gradewise_autograd::{Tensor, concat};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Placement, Result,
    data::{Batch, Edges, Samples, overwrite, scaled, to_device},
};
use std::sync::OnceLock;

/// Blades of the space-time algebra.
const BLADES: usize = 16;
/// Channels of [`JetBatch::features`].
pub(crate) const CHANNELS: usize = 4;
/// Vectors of the laboratory.
const REFERENCES: usize = 2;

/// A batch of jets, padded to its longest one. Everything is made in double precision and in the rest frame of each jet, where numbers are of
/// order one: a boost of the input changes it by a rotation and by the rounding of double precision alone.
#[derive(Clone, Debug)]
pub struct JetBatch {
    /// `[16, jets × particles, 4]`: as vectors, the momentum of the particle and of the jet, in units of the jet's mass; as scalars, twice
    /// the energy of the particle in units of that mass, and the logarithm of the mass over 100 GeV.
    pub features: Tensor,
    /// `[jets, particles, particles]`: products of momenta in units of the squared mass of the jet, at least 0; 0 for padding.
    pub products: Tensor,
    /// `[4, jets, 2]`: the directions of time and of the beam in the laboratory, for models that are to see them.
    pub references: Tensor,
    /// `[1, jets × particles, 1]`: one over the number of particles of the jet; zero for padding.
    pub particle_weights: Tensor,
    /// `[jets, particles]`: one over the number of other particles of the jet; zero for padding.
    pub neighbour_weights: Tensor,
    /// `[jets, 2]`: the class, one-hot.
    pub target: Tensor,
    /// Number of jets.
    pub jets: usize,
    /// Number of particles of each, padding included.
    pub particles: usize,
    edges: OnceLock<Edges>,
}

/// A jet in its rest frame, in units of its mass.
struct Resting {
    mass: f64,
    momenta: Vec<FourMomentum>,
    /// The directions of time and beam.
    references: [FourMomentum; REFERENCES],
}

impl Resting {
    fn of(jets: &JetSets, jet: usize) -> Self {
        let total = jets.total(jet);
        let mass = total.square().sqrt();
        let scaled = |momentum: FourMomentum| FourMomentum(momentum.0.map(|number| number / mass));
        let momenta = jets.jet(jet).map(|momentum| scaled(momentum.at_rest_with(&total, mass))).collect();
        let axes = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        let references = axes.map(|axis| FourMomentum(axis).at_rest_with(&total, mass));
        Self { mass, momenta, references }
    }
}

impl Samples for JetSets {
    type Batch = JetBatch;

    fn len(&self) -> usize {
        self.labels().len()
    }

    fn lengths(&self) -> Option<Vec<u32>> {
        Some((0..self.labels().len()).map(|jet| self.count(jet) as u32).collect())
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<JetBatch> {
        let jets = indices.len();
        let longest = indices.iter().map(|&jet| self.count(jet)).max().unwrap_or(0);
        let particles = self.padded(longest);
        let nodes = jets * particles;
        let mut features = vec![0.0; BLADES * nodes * CHANNELS];
        let mut products = vec![0.0; nodes * particles];
        let mut references = vec![0.0; 4 * jets * REFERENCES];
        let (mut particle_weights, mut neighbour_weights) = (vec![0.0; nodes], vec![0.0; nodes]);
        for (position, &jet) in indices.iter().enumerate() {
            let Resting { mass, momenta, references: axes } = Resting::of(self, jet);
            for (channel, axis) in axes.iter().enumerate() {
                for component in 0..4 {
                    references[(component * jets + position) * REFERENCES + channel] = axis.0[component];
                }
            }
            let count = momenta.len() as f64;
            for (particle, momentum) in momenta.iter().enumerate() {
                let node = position * particles + particle;
                particle_weights[node] = 1.0 / count;
                neighbour_weights[node] = 1.0 / (count - 1.0).max(1.0);
                features[node * CHANNELS + 2] = 2.0 * momentum.0[0];
                features[node * CHANNELS + 3] = (mass / 100.0).ln();
                for axis in 0..4 {
                    features[((1 + axis) * nodes + node) * CHANNELS] = momentum.0[axis];
                }
                // The jet at rest.
                features[(nodes + node) * CHANNELS + 1] = 1.0;
                for (other, neighbour) in momenta.iter().enumerate() {
                    products[node * particles + other] = momentum.dot(neighbour).max(0.0);
                }
            }
        }
        let class = |&jet: &usize| if self.labels()[jet] { [0.0, 1.0] } else { [1.0, 0.0] };
        let target: Vec<f64> = indices.iter().flat_map(class).collect();
        let Placement { device, dtype } = placement;
        let tensor = |values: &[f64], shape: &[usize]| -> Result<Tensor> {
            Ok(Tensor::new(Array::from_f64(values, shape, *dtype, device)?))
        };
        Ok(JetBatch {
            features: tensor(&features, &[BLADES, nodes, CHANNELS])?,
            products: tensor(&products, &[jets, particles, particles])?,
            references: tensor(&references, &[4, jets, REFERENCES])?,
            particle_weights: tensor(&particle_weights, &[1, nodes, 1])?,
            neighbour_weights: tensor(&neighbour_weights, &[jets, particles])?,
            target: tensor(&target, &[jets, 2])?,
            jets,
            particles,
            edges: OnceLock::new(),
        })
    }
}

impl JetBatch {
    /// A batch of one jet, by operations on tensors: momenta `[particles, 4]` (E, px, py, pz, in GeV), and 1 for each particle, 0 for padding,
    /// `[particles]`, both in `f64`. The batch is in `dtype`; its target is none.
    ///
    /// # Errors
    /// Other shapes or dtypes; from the device.
    pub fn of_momenta(momenta: &Tensor, there: &Tensor, dtype: DType) -> Result<Self> {
        let particles = there.shape().elements();
        let there = there.reshape([particles, 1])?;
        let momenta = momenta.mul(&there)?;
        let total = momenta.sum(&[0], true)?;
        let energy = |of: &Tensor| of.slice(1, 0..1);
        let space = |of: &Tensor| of.slice(1, 1..4);
        let mass = energy(&total)?.square()?.sub(&space(&total)?.square()?.sum(&[1], true)?)?.sqrt()?;
        // As `FourMomentum::at_rest_with`, in units of the mass.
        let at_rest = |of: &Tensor| -> Result<Tensor> {
            let along = space(of)?.mul(&space(&total)?)?.sum(&[1], true)?;
            let resting = energy(of)?.mul(&energy(&total)?)?.sub(&along)?.div(&mass)?;
            let factor = energy(of)?.add(&resting)?.div(&energy(&total)?.add(&mass)?)?;
            Ok(concat(&[&resting, &space(of)?.sub(&space(&total)?.mul(&factor)?)?], 1)?)
        };
        let resting = at_rest(&momenta)?.div(&mass)?;
        let minkowski = |a: &Tensor, b: &Tensor| -> Result<Tensor> {
            let in_space = space(a)?.matmul_transposed(&space(b)?, false, true)?;
            Ok(energy(a)?.matmul_transposed(&energy(b)?, false, true)?.sub(&in_space)?)
        };
        let products = minkowski(&resting, &resting)?.clamp(0.0, f64::INFINITY)?;
        let axes = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let axes = Tensor::new(Array::from_f64(&axes, [REFERENCES, 4], momenta.dtype(), &momenta.device())?);
        let zeros = |shape: &[usize]| Tensor::zeros(shape, momenta.dtype(), &momenta.device());
        // [1, particles, 1] each: the scalars, and the components of both vectors.
        let own = resting.transpose(0, 1)?.reshape([4, particles, 1])?;
        let of_jet = concat(&[&there.reshape([1, particles, 1])?, &zeros(&[3, particles, 1])?], 0)?;
        let vectors = concat(&[&own, &of_jet, &zeros(&[4, particles, 2])?], 2)?;
        let energies = own.slice(0, 0..1)?.mul_scalar(2.0)?;
        let masses = there.mul(&mass.mul_scalar(0.01)?.log()?)?.reshape([1, particles, 1])?;
        let scalars = concat(&[&zeros(&[1, particles, 2])?, &energies, &masses], 2)?;
        let rest = zeros(&[BLADES - 5, particles, CHANNELS])?;
        let count = there.sum(&[0], true)?;
        let neighbours = count.add_scalar(-1.0)?.clamp(1.0, f64::INFINITY)?;
        Ok(Self {
            features: concat(&[&scalars, &vectors, &rest], 0)?.cast(dtype)?,
            products: products.reshape([1, particles, particles])?.cast(dtype)?,
            references: at_rest(&axes)?.transpose(0, 1)?.reshape([4, 1, REFERENCES])?.cast(dtype)?,
            particle_weights: there.div(&count)?.reshape([1, particles, 1])?.cast(dtype)?,
            neighbour_weights: there.div(&neighbours)?.reshape([1, particles])?.cast(dtype)?,
            target: zeros(&[1, 2])?.cast(dtype)?,
            jets: 1,
            particles,
            edges: OnceLock::new(),
        })
    }

    /// Every ordered pair of particles of a jet, receivers first. Made when it is first asked for, and kept: only messages need it.
    ///
    /// # Errors
    /// No memory.
    pub fn edges(&self) -> Result<&Edges> {
        if let Some(edges) = self.edges.get() {
            return Ok(edges);
        }
        let edges = Edges::complete(self.jets, self.particles, &self.features.device())?;
        Ok(self.edges.get_or_init(|| edges))
    }

    fn tensors(&self) -> [&Tensor; 6] {
        let Self { features, products, references, particle_weights, neighbour_weights, target, .. } = self;
        [features, products, references, particle_weights, neighbour_weights, target]
    }
}

impl Batch for JetBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self {
            features: to_device(&self.features, device)?,
            products: to_device(&self.products, device)?,
            references: to_device(&self.references, device)?,
            particle_weights: to_device(&self.particle_weights, device)?,
            neighbour_weights: to_device(&self.neighbour_weights, device)?,
            target: to_device(&self.target, device)?,
            jets: self.jets,
            particles: self.particles,
            edges: OnceLock::new(),
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
            products: scaled(&self.products, factor)?,
            references: scaled(&self.references, factor)?,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::Signature;
    use gradewise_kernels::DType;
    use gradewise_nn::{
        data::Split,
        symmetry::{Isometry, relative_distance},
    };
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn values(tensor: &Tensor) -> Vec<f64> {
        tensor.array().to_f64_vec().unwrap()
    }

    /// Of a batch of jets of different lengths, each is what its own momenta make, padding included.
    #[test]
    fn momenta_make_the_batch_of_their_jet() {
        let jets = JetSets::simulate(6, 9, 2, Split::Train).unwrap();
        let (momenta, particles) = (jets.momenta(), 9);
        for jet in 0..6 {
            let place = Placement::new(&Device::Cpu, DType::F64);
            let one = jets.clone().padded_to(particles).batch(&[jet], &place).unwrap();
            assert_eq!(one.particles, particles);
            let tensor = |values: &[f64], shape: &[usize]| {
                Tensor::new(Array::from_f64(values, shape, DType::F64, &Device::Cpu).unwrap())
            };
            let there: Vec<f64> = (0..particles).map(|i| f64::from(i < jets.count(jet))).collect();
            let own = tensor(&momenta[jet * particles * 4..][..particles * 4], &[particles, 4]);
            let made = JetBatch::of_momenta(&own, &tensor(&there, &[particles]), DType::F64).unwrap();
            for (made, expected) in made.tensors().into_iter().zip(one.tensors()).take(5) {
                assert_eq!(made.shape(), expected.shape());
                let [made, expected] = [made, expected].map(|x| x.array().to_f64_vec().unwrap());
                for (a, b) in made.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn scalars_of_a_batch_do_not_change_under_boosts_and_vectors_turn() {
        let jets = JetSets::simulate(5, 8, 1, Split::Valid).unwrap();
        let place = Placement::new(&Device::Cpu, DType::F64);
        let isometry = Isometry::random(Signature::STA, 4, &mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let moved = jets.clone().moved(&isometry).unwrap().batch(&[4, 1, 1], &place).unwrap();
        let plain = jets.batch(&[4, 1, 1], &place).unwrap();
        let error = relative_distance(&values(&moved.products), &values(&plain.products));
        assert!(error < 1e-9, "{error:e}");
        let (a, b) = (values(&moved.features), values(&plain.features));
        let lane = 24 * CHANNELS;
        assert!(relative_distance(&a[..2 * lane], &b[..2 * lane]) < 1e-9, "scalars and energies");
        let (a, b) = (&a[2 * lane..5 * lane], &b[2 * lane..5 * lane]);
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
        assert!(relative_distance(a, b) > 0.1 && (norm(a) / norm(b) - 1.0).abs() < 1e-9, "vectors turn");
        let weights = values(&plain.particle_weights);
        assert!(weights.chunks_exact(8).all(|jet| (jet.iter().sum::<f64>() - 1.0).abs() < 1e-12));
        assert!(values(&plain.neighbour_weights).iter().all(|weight| weight.is_finite()));
    }

    /// The sum of the momenta is the jet at rest, products are those of the momenta, and axes keep their products with them.
    #[test]
    fn the_rest_frame_is_one() {
        let jets = JetSets::simulate(4, 9, 5, Split::Test).unwrap();
        for jet in 0..4 {
            let Resting { mass, momenta, references } = Resting::of(&jets, jet);
            let total = momenta.iter().fold(FourMomentum([0.0; 4]), |sum, p| sum.plus(p));
            let error = relative_distance(&total.0, &[1.0, 0.0, 0.0, 0.0]);
            assert!(error < 1e-12, "{error:e}");
            for (a, moved) in jets.jet(jet).zip(&momenta) {
                for (b, other) in jets.jet(jet).zip(&momenta) {
                    assert!((a.dot(&b) / mass.powi(2) - moved.dot(other)).abs() < 1e-12);
                }
                assert!((a.0[0] / mass - references[0].dot(moved)).abs() < 1e-11 * a.0[0] / mass);
                assert!((a.0[3] / mass + references[1].dot(moved)).abs() < 1e-11 * a.0[0] / mass);
            }
        }
    }

    #[test]
    fn batches_are_as_long_as_their_longest_jet() {
        let jets = JetSets::simulate(40, 60, 3, Split::Train).unwrap();
        let place = Placement::new(&Device::Cpu, DType::F32);
        let counts: Vec<usize> = (0..40).map(|jet| jets.count(jet)).collect();
        assert_eq!(jets.lengths().unwrap(), counts.iter().map(|&count| count as u32).collect::<Vec<_>>());
        let shortest = (0..40).min_by_key(|&jet| counts[jet]).unwrap();
        for indices in [vec![shortest], (0..40).collect()] {
            let batch = jets.batch(&indices, &place).unwrap();
            let longest = indices.iter().map(|&jet| counts[jet]).max().unwrap();
            assert_eq!((batch.particles, batch.jets), (longest, indices.len()));
            assert_eq!(batch.products.shape().dims(), [indices.len(), longest, longest]);
            let there = values(&batch.particle_weights).iter().filter(|&&weight| weight > 0.0).count();
            assert_eq!(there, indices.iter().map(|&jet| counts[jet]).sum::<usize>());
            assert_eq!(batch.edges().unwrap().receivers.len(), indices.len() * longest * (longest - 1));
        }
        let batch = jets.padded_to(16).batch(&[shortest], &place).unwrap();
        assert_eq!(batch.particles, counts[shortest].next_multiple_of(16));
    }
}
