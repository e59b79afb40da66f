//! The charged n-body model (Ruhe et al. 2023, arXiv:2305.11141): where will each particle be?

mod pushes;

use self::pushes::Pushes;
use super::MessagePassing;
use crate::{
    Error, Module, Placement, Result,
    data::{
        Edges,
        nbody::{
            NBodyBatch,
            batch::{CHANNELS, GEOMETRY},
        },
    },
    layers::{Layer, MvLinear},
    loss,
};
use gradewise_autograd::{Tensor, concat};
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use serde::{Deserialize, Serialize};

/// What is predicted lies one unit of time ahead.
const DURATION: f64 = 1.0;
/// Standard deviation of a first prediction of [`NBodyConfig::substeps`], for features of size 1: small beside the motion itself.
const FIRST_STEP: f64 = 0.1;

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
    /// Whether, within each of the [`substeps`](Self::substeps), every message also pushes its receiver along the line to the sender,
    /// by three scalars of its own times inverse powers of their distance: the coordinate update of Satorras, Hoogeboom and
    /// Welling (2021, arXiv:2102.09844), with the range of sizes that a force between particles has and normalised features have not.
    pub pushes: bool,
}

impl Default for NBodyConfig {
    fn default() -> Self {
        Self {
            hidden: 28,
            layers: 3,
            velocities: false,
            conjugation: false,
            geometry: false,
            substeps: 0,
            pushes: false,
        }
    }
}

/// The model: an embedding shared by the grades, rounds of messages over all pairs, and a projection to one
/// multivector per particle, whose vector part is the predicted displacement.
#[derive(Module)]
pub struct NBody {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    projection: MvLinear,
    pushes: Option<Pushes>,
    #[module(skip)]
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
        let pushes = if config.pushes && config.substeps > 0 {
            Some(Pushes::init(config.hidden, &placement, rng)?)
        } else {
            None
        };
        Ok(Self { embedding, layers, projection, pushes, config: *config })
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
        let (h, _) = self.rounds(h, geometry.as_ref().unwrap_or(&batch.attributes), &batch.edges)?;
        let vectors = self.projection.forward(&h)?.slice(0, 1..4)?;
        let positions = batch.positions.add(&channel(&vectors, 0)?)?;
        if !self.config.velocities {
            return Ok((positions, None));
        }
        let velocities = channel(&start.slice(0, 1..4)?, 1)?;
        Ok((positions, Some(velocities.add(&channel(&vectors, 1)?)?)))
    }

    /// All rounds of messages; the messages of the last one, too, if there is one.
    fn rounds(&self, h: Tensor, attributes: &Tensor, edges: &Edges) -> Result<(Tensor, Option<Tensor>)> {
        self.layers.iter().try_fold((h, None), |(h, _), layer| {
            let (h, messages) = layer.forward_with_messages(&h, attributes, edges)?;
            Ok((h, Some(messages)))
        })
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
            let geometry = batch.geometry(&motion)?;
            let messages;
            (h, messages) = self.rounds(h, &geometry, &batch.edges)?;
            let mut change = self.projection.forward(&h)?.slice(0, 1..4)?;
            if let Some((pushes, messages)) = self.pushes.as_ref().zip(messages) {
                // A push that lasts all the time changes the mean velocity by half of what it changes the last one.
                let push = pushes.forward(&messages, &geometry, &batch.edges)?;
                change = change.add(&concat(&[&push.mul_scalar(duration / 2.0)?, &push], 2)?)?;
            }
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
