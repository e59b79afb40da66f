//! Systems of charged particles in the layout of the model.

use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Error, Placement, Result,
    data::{Batch, Edges, scaled},
};

/// A batch of systems in the layout of the model.
#[derive(Clone, Debug)]
pub struct NBodyBatch {
    /// `[8, systems × particles, 3]`: the charge as a scalar, the position relative to the system's mean and the velocity
    /// as vectors.
    pub features: Tensor,
    /// `[8, edges, 1]`: the product of the charges, or the mass of the sender, as a scalar.
    pub attributes: Tensor,
    /// `[3, systems × particles]`: positions, one row per coordinate.
    pub positions: Tensor,
    /// Every ordered pair of particles of a system.
    pub edges: Edges,
    /// Number of systems.
    pub systems: usize,
    /// Particles per system.
    pub particles: usize,
}

pub(crate) const CHANNELS: usize = 3;
/// Attributes of an edge that `NBodyConfig::geometry` adds.
pub(crate) const GEOMETRY: usize = 4;
/// ε² of the inverse distance 1 / √(r² + ε²), in the simulation's unit of length: the force is capped at about this distance.
const SOFTENING: f64 = 0.01;

impl NBodyBatch {
    /// A batch from positions and velocities `[systems][3][particles]` and charges `[systems][particles]`, all row-major
    /// (the layout of the published files).
    ///
    /// # Errors
    /// Slices whose lengths do not agree; a dtype the device does not serve.
    pub fn new(
        state: (&[f64], &[f64], &[f64]),
        particles: usize,
        placement: impl Into<Placement>,
    ) -> Result<Self> {
        Self::of(state, particles, &placement.into(), |receiver, sender| receiver * sender)
    }

    /// As [`new`](Self::new), with masses in the place of charges and the sender's mass as the attribute of an edge: the acceleration of a
    /// body does not depend on its own mass.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn gravity(
        state: (&[f64], &[f64], &[f64]),
        particles: usize,
        placement: impl Into<Placement>,
    ) -> Result<Self> {
        Self::of(state, particles, &placement.into(), |_, sender| sender)
    }

    /// A batch of one system, by operations on tensors: positions and velocities `[3, particles]` and charges `[particles]`.
    ///
    /// # Errors
    /// Other shapes, different dtypes.
    pub fn of_system(positions: &Tensor, velocities: &Tensor, charges: &Tensor) -> Result<Self> {
        let particles = charges.shape().elements();
        let device = positions.device();
        let edges = Edges::complete(1, particles, &device)?;
        let zeros = |shape: [usize; 3]| Tensor::zeros(shape, positions.dtype(), &device);
        let centred = positions.sub(&positions.mean(&[1], true)?)?;
        let column = |x: &Tensor| x.reshape([x.shape().elements() / particles, particles, 1]);
        let vectors = concat(&[&zeros([3, particles, 1])?, &column(&centred)?, &column(velocities)?], 2)?;
        let scalars = concat(&[&column(charges)?, &zeros([1, particles, 2])?], 2)?;
        let features = concat(&[&scalars, &vectors, &zeros([4, particles, CHANNELS])?], 0)?;
        let ends = [&edges.receivers, &edges.senders].map(|end| charges.index_select(0, end));
        let [receivers, senders] = ends;
        let count = edges.receivers.len();
        let products = receivers?.mul(&senders?)?.reshape([1, count, 1])?;
        Ok(Self {
            features,
            attributes: concat(&[&products, &zeros([7, count, 1])?], 0)?,
            positions: positions.clone(),
            edges,
            systems: 1,
            particles,
        })
    }

    fn of(
        (positions, velocities, charges): (&[f64], &[f64], &[f64]),
        particles: usize,
        placement: &Placement,
        of_pair: impl Fn(f64, f64) -> f64,
    ) -> Result<Self> {
        let systems = charges.len().checked_div(particles).unwrap_or(0);
        let nodes = systems * particles;
        for (argument, actual, expected) in [
            ("charges", charges.len(), nodes),
            ("positions", positions.len(), 3 * nodes),
            ("velocities", velocities.len(), 3 * nodes),
        ] {
            if actual != expected || particles == 0 {
                return Err(Error::Argument {
                    operation: "NBodyBatch::new",
                    argument,
                    actual: format!("{actual} numbers"),
                    expected: format!("{expected} for {systems} systems of {particles} particles"),
                });
            }
        }
        let at = |system: usize, axis: usize, particle: usize| (system * 3 + axis) * particles + particle;
        let mut features = vec![0.0; 8 * nodes * CHANNELS];
        let mut rows = vec![0.0; 3 * nodes];
        for system in 0..systems {
            for axis in 0..3 {
                let line = &positions[at(system, axis, 0)..][..particles];
                let mean = line.iter().sum::<f64>() / particles as f64;
                for particle in 0..particles {
                    let node = system * particles + particle;
                    let vector = ((1 + axis) * nodes + node) * CHANNELS;
                    features[vector + 1] = line[particle] - mean;
                    features[vector + 2] = velocities[at(system, axis, particle)];
                    rows[axis * nodes + node] = line[particle];
                }
            }
        }
        for (node, &charge) in charges.iter().enumerate() {
            features[node * CHANNELS] = charge;
        }
        let Placement { device, dtype } = placement;
        let edges = Edges::complete(systems, particles, device)?;
        let (receivers, senders) = (edges.receivers.to_vec()?, edges.senders.to_vec()?);
        let mut attributes = vec![0.0; 8 * receivers.len()];
        for (attribute, (&i, &j)) in attributes.iter_mut().zip(receivers.iter().zip(&senders)) {
            *attribute = of_pair(charges[i], charges[j]);
        }
        let tensor = |values: &[f64], shape: &[usize]| -> Result<Tensor> {
            Ok(Tensor::new(Array::from_f64(values, shape, *dtype, device)?))
        };
        Ok(Self {
            features: tensor(&features, &[8, nodes, CHANNELS])?,
            attributes: tensor(&attributes, &[8, receivers.len(), 1])?,
            positions: tensor(&rows, &[3, nodes])?,
            edges,
            systems,
            particles,
        })
    }

    /// The same batch on `device`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let tensor =
            |tensor: &Tensor| -> Result<Tensor> { Ok(Tensor::new(tensor.array().to_device(device)?)) };
        Ok(Self {
            features: tensor(&self.features)?,
            attributes: tensor(&self.attributes)?,
            positions: tensor(&self.positions)?,
            edges: self.edges.to_device(device)?,
            systems: self.systems,
            particles: self.particles,
        })
    }

    /// The same systems with charges, positions and velocities multiplied by `factor`, and products of charges by its square.
    ///
    /// # Errors
    /// From the device.
    pub fn scaled(&self, factor: f64) -> Result<Self> {
        Ok(Self {
            features: scaled(&self.features, factor)?,
            attributes: scaled(&self.attributes, factor * factor)?,
            positions: scaled(&self.positions, factor)?,
            ..self.clone()
        })
    }

    /// Puts the values of `source` in place of this batch's own; `false`, and nothing changed, if it has other systems or
    /// edges.
    ///
    /// # Errors
    /// From the device.
    pub fn overwrite(&self, source: &Self) -> Result<bool> {
        let same = (self.systems, self.particles) == (source.systems, source.particles)
            && self.edges.receivers.same_indices(&source.edges.receivers)?
            && self.edges.senders.same_indices(&source.edges.senders)?;
        if !same {
            return Ok(false);
        }
        let pairs = [
            (&self.features, &source.features),
            (&self.attributes, &source.attributes),
            (&self.positions, &source.positions),
        ];
        for (target, source) in pairs {
            target.array().overwrite_shared(source.array())?;
        }
        Ok(true)
    }

    /// The attributes of the edges, followed by those that `NBodyConfig::geometry` adds for positions and velocities `motion` `[8, systems
    /// × particles, 2]`: `[8, edges, 1 + 4]`, relative position and velocity as vectors, squared distance and softened inverse distance as
    /// scalars.
    pub(crate) fn geometry(&self, motion: &Tensor) -> Result<Tensor> {
        let Edges { receivers, senders } = &self.edges;
        let relative = motion.edge_difference(None, receivers, senders)?;
        let squared = relative.slice(2, 0..1)?.square()?.sum(&[0], true)?;
        let inverse = squared.add_scalar(SOFTENING)?.rsqrt()?;
        let scalars = concat(&[&squared, &inverse], 2)?;
        let rest = Tensor::zeros([7, receivers.len(), 2], relative.dtype(), &relative.device())?;
        let scalars = concat(&[&scalars, &rest], 0)?;
        Ok(concat(&[&self.attributes, &relative, &scalars], 2)?)
    }

    /// Target positions `[systems][3][particles]` in the layout of [`positions`](Self::positions).
    ///
    /// # Errors
    /// A number of values other than that of the positions.
    pub fn targets(&self, positions: &[f64]) -> Result<Tensor> {
        let nodes = self.systems * self.particles;
        if positions.len() != 3 * nodes {
            return Err(Error::Argument {
                operation: "NBodyBatch::targets",
                argument: "positions",
                actual: format!("{} numbers", positions.len()),
                expected: (3 * nodes).to_string(),
            });
        }
        let mut rows = vec![0.0; 3 * nodes];
        for (system, chunk) in positions.chunks_exact(3 * self.particles).enumerate() {
            for (axis, line) in chunk.chunks_exact(self.particles).enumerate() {
                rows[axis * nodes + system * self.particles..][..self.particles].copy_from_slice(line);
            }
        }
        let (dtype, device) = (self.positions.dtype(), self.positions.device());
        Ok(Tensor::new(Array::from_f64(&rows, [3, nodes], dtype, &device)?))
    }

    /// Values in the layout of [`positions`](Self::positions) back as `[systems][3][particles]`.
    ///
    /// # Errors
    /// A number of values other than that of the positions.
    pub fn by_system(&self, rows: &Tensor) -> Result<Vec<f64>> {
        let shape = [3, self.systems, self.particles];
        Ok(rows.array().reshape(shape)?.permute(&[1, 0, 2])?.to_f64_vec()?)
    }
}

/// Inputs alone, for predictions.
impl Batch for NBodyBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        self.to_device(device)
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        self.overwrite(source)
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        self.scaled(factor).map(Some)
    }
}
