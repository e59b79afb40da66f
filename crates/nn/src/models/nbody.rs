//! The charged n-body model (Ruhe et al. 2023, arXiv:2305.11141): where will each particle be?

use super::{Edges, MessagePassing};
use crate::{
    Error, Module, Placement, Result, Visitor,
    layers::{Layer, MvLinear},
    loss,
    train::scaled,
};
use gradewise_autograd::{Tensor, concat};
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType, Device};
use serde::{Deserialize, Serialize};

/// Sizes of the model. The defaults are the paper's, with 134,625 parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NBodyConfig {
    /// Multivector features per particle.
    pub hidden: usize,
    /// Rounds of messages.
    pub layers: usize,
    /// Whether velocities are predicted too, so that the prediction is a state to go on from; not so in the paper.
    pub velocities: bool,
    /// Whether charges are seen through their products alone, so that turning the sign of every charge changes nothing, which is
    /// a symmetry of the motion; not so in the paper.
    pub conjugation: bool,
    /// Whether every message sees how its two particles lie to each other: relative position and velocity, squared distance
    /// and inverse distance; not so in the paper, where the first round alone could form some of these.
    pub geometry: bool,
    /// In how many equal steps the particles are moved: each step is the same layers at work on where the particles then are, as
    /// in an integrator, and adds what they predict to positions and velocities. 0 for the paper's model, which predicts one
    /// displacement.
    pub substeps: usize,
}

impl Default for NBodyConfig {
    fn default() -> Self {
        Self { hidden: 28, layers: 3, velocities: false, conjugation: false, geometry: false, substeps: 0 }
    }
}

/// A batch of systems as the model takes it.
#[derive(Clone, Debug)]
pub struct NBodyBatch {
    /// `[8, systems × particles, 3]`: the charge as a scalar, the position relative to the system's mean and the velocity
    /// as vectors.
    pub features: Tensor,
    /// `[8, edges, 1]`: the product of the charges, as a scalar.
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

const CHANNELS: usize = 3;
/// Attributes of an edge that [`NBodyConfig::geometry`] adds.
const GEOMETRY: usize = 4;
/// ε² of the inverse distance 1 / √(r² + ε²), in the simulation's unit of length: the force is capped at about this distance.
const SOFTENING: f64 = 0.01;
/// What is predicted lies one unit of time ahead.
const DURATION: f64 = 1.0;
/// Standard deviation of a first prediction of [`NBodyConfig::substeps`], for features of size 1: small beside the motion itself.
const FIRST_STEP: f64 = 0.1;

impl NBodyBatch {
    /// A batch from positions and velocities `[systems][3][particles]` and charges `[systems][particles]`, all row-major
    /// (the layout of the published files).
    ///
    /// # Errors
    /// Slices whose lengths do not agree; a dtype the device does not serve.
    pub fn new(
        (positions, velocities, charges): (&[f64], &[f64], &[f64]),
        particles: usize,
        placement: &Placement,
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
        let (receivers, senders) = (edges.receivers.to_vec(), edges.senders.to_vec());
        let mut attributes = vec![0.0; 8 * receivers.len()];
        for (attribute, (&i, &j)) in attributes.iter_mut().zip(receivers.iter().zip(&senders)) {
            *attribute = charges[i] * charges[j];
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
            && self.edges.receivers.same_indices(&source.edges.receivers)
            && self.edges.senders.same_indices(&source.edges.senders);
        if !same {
            return Ok(false);
        }
        let pairs = [
            (&self.features, &source.features),
            (&self.attributes, &source.attributes),
            (&self.positions, &source.positions),
        ];
        for (target, source) in pairs {
            target.array().overwrite(source.array())?;
        }
        Ok(true)
    }

    /// The attributes of the edges and, after them, what [`NBodyConfig::geometry`] adds for positions and velocities `motion`
    /// `[8, systems × particles, 2]`: `[8, edges, 1 + 4]`, relative position and velocity as vectors, squared distance and softened
    /// inverse distance as scalars.
    fn geometry(&self, motion: &Tensor) -> Result<Tensor> {
        let Edges { receivers, senders } = &self.edges;
        let relative = motion.index_select(1, receivers)?.sub(&motion.index_select(1, senders)?)?;
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

/// The model: an embedding shared by the grades, rounds of messages over all pairs, and a projection to one
/// multivector per particle, whose vector part is the predicted displacement.
pub struct NBody {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    projection: MvLinear,
    config: NBodyConfig,
}

impl NBody {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &NBodyConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, signature) = (placement.into(), Signature::CL3);
        let inputs = CHANNELS - usize::from(config.conjugation);
        let attributes = 1 + if config.geometry || config.substeps > 0 { GEOMETRY } else { 0 };
        let embedding =
            MvLinear::new(inputs, config.hidden, signature).per_grade(false).init(&placement, rng)?;
        let layers = (0..config.layers)
            .map(|_| MessagePassing::init(config.hidden, attributes, signature, &placement, rng))
            .collect::<Result<_>>()?;
        let outputs = 1 + usize::from(config.velocities || config.substeps > 0);
        let mut projection = MvLinear::new(config.hidden, outputs, signature);
        if config.substeps > 0 {
            projection = projection.variance(FIRST_STEP.powi(2) / config.hidden.max(1) as f64);
        }
        let projection = projection.init(&placement, rng)?;
        Ok(Self { embedding, layers, projection, config: *config })
    }

    /// Predicted positions `[3, systems × particles]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn forward(&self, batch: &NBodyBatch) -> Result<Tensor> {
        Ok(self.outputs(batch)?.0)
    }

    /// Whether [`forward_state`](Self::forward_state) has velocities.
    pub fn predicts_velocities(&self) -> bool {
        self.config.velocities
    }

    /// Predicted positions and velocities, both `[3, systems × particles]`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); a model that [predicts no velocities](NBodyConfig::velocities).
    pub fn forward_state(&self, batch: &NBodyBatch) -> Result<(Tensor, Tensor)> {
        match self.outputs(batch)? {
            (positions, Some(velocities)) => Ok((positions, velocities)),
            (_, None) => Err(Error::Argument {
                operation: "NBody::forward_state",
                argument: "velocities",
                actual: "a model of positions alone".to_owned(),
                expected: "one made with NBodyConfig::velocities".to_owned(),
            }),
        }
    }

    fn outputs(&self, batch: &NBodyBatch) -> Result<(Tensor, Option<Tensor>)> {
        let shape = batch.positions.shape();
        let channel = |tensor: &Tensor, index: usize| tensor.slice(2, index..index + 1)?.reshape(shape);
        let seen = if self.config.conjugation { 1..CHANNELS } else { 0..CHANNELS };
        let h = self.embedding.forward(&batch.features.slice(2, seen)?)?;
        let start = batch.features.slice(2, 1..CHANNELS)?;
        if self.config.substeps > 0 {
            let end = self.integrate(batch, h, &start)?;
            let displacement = end.sub(&start)?.slice(0, 1..4)?;
            let velocities =
                if self.config.velocities { Some(channel(&end.slice(0, 1..4)?, 1)?) } else { None };
            return Ok((batch.positions.add(&channel(&displacement, 0)?)?, velocities));
        }
        let geometry = if self.config.geometry { Some(batch.geometry(&start)?) } else { None };
        let h = self.rounds(h, geometry.as_ref().unwrap_or(&batch.attributes), &batch.edges)?;
        let vectors = self.projection.forward(&h)?.slice(0, 1..4)?;
        let positions = batch.positions.add(&channel(&vectors, 0)?)?;
        if !self.config.velocities {
            return Ok((positions, None));
        }
        let velocities = channel(&start.slice(0, 1..4)?, 1)?;
        Ok((positions, Some(velocities.add(&channel(&vectors, 1)?)?)))
    }

    /// All rounds of messages.
    fn rounds(&self, h: Tensor, attributes: &Tensor, edges: &Edges) -> Result<Tensor> {
        self.layers.iter().try_fold(h, |h, layer| layer.forward(&h, attributes, edges))
    }

    /// Positions and velocities `[8, systems × particles, 2]` at the end of the time, as vectors.
    fn integrate(&self, batch: &NBodyBatch, mut h: Tensor, start: &Tensor) -> Result<Tensor> {
        let (nodes, duration) = (start.shape()[1], DURATION / self.config.substeps as f64);
        let zeros = |blades: usize, channels: usize| {
            Tensor::zeros([blades, nodes, channels], start.dtype(), &start.device())
        };
        let (scalar, rest, still) = (zeros(1, 2)?, zeros(4, 2)?, zeros(8, 1)?);
        let mut motion = start.clone();
        for _ in 0..self.config.substeps {
            h = self.rounds(h, &batch.geometry(&motion)?, &batch.edges)?;
            let change = self.projection.forward(&h)?.slice(0, 1..4)?;
            let drift = concat(&[&motion.slice(2, 1..2)?.mul_scalar(duration)?, &still], 2)?;
            motion = motion.add(&drift)?.add(&concat(&[&scalar, &change, &rest], 0)?)?;
        }
        Ok(motion)
    }

    /// Mean squared error of the predictions over coordinates, particles and systems; `targets` are true positions
    /// `[3, systems × particles]`, or these and true velocities `[6, systems × particles]`, which a model of positions passes over.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); a model of velocities without targets for them.
    pub fn loss(&self, batch: &NBodyBatch, targets: &Tensor) -> Result<Tensor> {
        match self.outputs(batch)? {
            (positions, None) => loss::mean_squared_error(&positions, &targets.slice(0, 0..3)?),
            (positions, Some(velocities)) => {
                loss::mean_squared_error(&concat(&[&positions, &velocities], 0)?, targets)
            }
        }
    }

    /// Where the parameters are, and their dtype.
    pub fn placement(&self) -> Placement {
        let weight = self.projection.weight().array();
        let (device, dtype): (Device, DType) = (weight.device(), weight.dtype());
        Placement { device, dtype }
    }
}

impl Module for NBody {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("embedding", &self.embedding);
        for (index, layer) in self.layers.iter().enumerate() {
            visitor.module(format_args!("layers.{index}"), layer);
        }
        visitor.module("projection", &self.projection);
    }
}
