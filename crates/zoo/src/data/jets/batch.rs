//! Batches of jets, as the models take them.

use gradewise_autograd::{Tensor, concat};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Result,
    data::{Batch, Edges, overwrite, scaled, to_device},
};
use std::sync::OnceLock;

/// Blades of the space-time algebra.
const BLADES: usize = 16;
/// The blades of [`JetBatch::features`]: the scalar and the vectors.
pub(super) const FILLED: usize = 5;
/// Channels of [`JetBatch::features`].
pub(crate) const CHANNELS: usize = 4;
/// Vectors of the laboratory.
pub(super) const REFERENCES: usize = 2;

/// A batch of jets, padded to its longest one. Everything is made in double precision and in the rest frame of each jet, where numbers are of
/// order one: a boost of the input changes it by a rotation and by the rounding of double precision alone.
#[derive(Clone, Debug)]
pub struct JetBatch {
    /// `[5, jets × particles, 4]`, the scalar and the four vectors of Cl(1,3): as vectors, the momentum of the particle and of the jet, in units of
    /// the jet's mass; as scalars, twice the energy of the particle in units of that mass, and the logarithm of the mass over 100 GeV.
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
    pub(super) edges: OnceLock<Edges>,
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
        let count = there.sum(&[0], true)?;
        let neighbours = count.add_scalar(-1.0)?.clamp(1.0, f64::INFINITY)?;
        Ok(Self {
            features: concat(&[&scalars, &vectors], 0)?.cast(dtype)?,
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

    /// The features as multivectors of Cl(1,3), `[16, jets × particles, 4]`, zero in the grades above 1.
    ///
    /// # Errors
    /// No memory.
    pub fn multivectors(&self) -> Result<Tensor> {
        let [nodes, channels] = [1, 2].map(|axis| self.features.shape()[axis]);
        let above = [BLADES - FILLED, nodes, channels];
        let above = Tensor::zeros(above, self.features.dtype(), &self.features.device())?;
        Ok(concat(&[&self.features, &above], 0)?)
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

    pub(super) fn tensors(&self) -> [&Tensor; 6] {
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
