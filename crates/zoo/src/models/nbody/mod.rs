//! The charged n-body model (Ruhe et al. 2023, arXiv:2305.11141), which predicts the position of each particle.

mod kicks;
mod pushes;

use super::MessagePassing;
use crate::data::{
    Complexes, SimplicialComplex,
    nbody::{
        NBodyBatch,
        batch::{CHANNELS, GEOMETRY},
    },
};
use crate::models::nbody::{
    kicks::{Kicks, Motion},
    pushes::Pushes,
};
use gradewise_autograd::{Tensor, concat};
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    DeepClone, Error, Module, Placement, Result,
    data::Edges,
    layers::{Layer, MvLinear},
    loss,
};
use serde::{Deserialize, Serialize};

/// Standard deviation of the initial predictions with [`NBodyConfig::substeps`], for features of size 1 and a unit of time: small compared
/// with the motion.
const FIRST_STEP: f64 = 0.1;

gradewise_nn::choices! {
    /// Between what messages go.
    pub enum NBodyGraph {
        /// All pairs of particles
        Pairs = "pairs",
        /// Particles, and the edges and triangles between them, which have features of their own
        Simplices = "simplices",
    }
}

/// Sizes of the model. The defaults are the paper's, with 134,625 parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NBodyConfig {
    /// Multivector features per particle.
    pub hidden: usize,
    /// Rounds of messages.
    pub layers: usize,
    /// Between what messages go. With simplices, all kinds share one set of weights, and the kind of simplices and messages is an input, as
    /// in Liu et al. (2024, arXiv:2402.10011).
    pub graph: NBodyGraph,
    /// Whether velocities are predicted, too, so that the prediction is a complete state, from which a rollout can continue; `false` in the
    /// paper.
    pub velocities: bool,
    /// Whether charges enter only through their products, so that the model is invariant under a sign change of all charges, a symmetry of
    /// the motion; `false` in the paper.
    pub conjugation: bool,
    /// Whether every message has the geometry of its pair as an input: relative position and velocity, squared distance and inverse
    /// distance; `false` in the paper, where only the first round could compute some of these.
    pub geometry: bool,
    /// The number of equal steps in which the particles are moved. As in an integrator, each step applies the same layers to the current
    /// state and adds their prediction to positions and velocities. 0 for the paper's model, which predicts one displacement.
    pub substeps: usize,
    /// Whether, within each of the [`substeps`](Self::substeps), every message also pushes its receiver along the line to the sender, by
    /// three scalars of the message times inverse powers of the distance: the coordinate update of Satorras, Hoogeboom and Welling (2021,
    /// arXiv:2102.09844), with the dynamic range of a force between particles, which normalised features lack.
    pub pushes: bool,
    /// The number of small steps, within each of the [`substeps`](Self::substeps), in which pairs attract or repel each other by the
    /// inverse square of their distance, with strengths from the messages. Close encounters, which dominate the error, need them. 0 for
    /// none.
    pub kicks: usize,
    /// ε² in r² + ε² of the kicks, before training, in squared units of length.
    pub softening: f64,
    /// Whether the step length of kicks adapts to each system: shorter while a pair is close.
    pub adaptive: bool,
    /// Whether gradients flow through the paths of the kicks. Along chaotic paths they grow by ten orders of magnitude, and a few systems
    /// dominate them. If `false`, strengths are learnt from the effect of forces along a fixed path.
    pub paths: bool,
    /// Whether messages correct the result of the kicks after each substep, the more so the closer pairs have come: no step is short enough
    /// for the closest encounters. If `false`, the model can only learn pair forces.
    pub corrections: bool,
    /// The time from the input to the target.
    pub duration: f64,
    /// The scale c of the robust loss c (√(1 + 2e/c) − 1) of a system with mean squared error e, which grows as e below c and as √e above.
    /// A few systems with chaotic paths have errors a thousand times those of others, and would dominate every step. 0 for the mean squared
    /// error.
    pub robust: f64,
}

impl Default for NBodyConfig {
    fn default() -> Self {
        Self {
            hidden: 28,
            layers: 3,
            graph: NBodyGraph::Pairs,
            velocities: false,
            conjugation: false,
            geometry: false,
            substeps: 0,
            pushes: false,
            kicks: 0,
            softening: 0.003,
            adaptive: false,
            paths: true,
            corrections: true,
            duration: 1.0,
            robust: 0.0,
        }
    }
}

impl NBodyConfig {
    /// The first invalid setting, if there is one: its name, its value and the accepted values.
    pub fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let Self { substeps, kicks, softening, duration, robust, .. } = *self;
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let simplices = self.graph == NBodyGraph::Simplices;
        match () {
            () if simplices && (substeps > 0 || self.geometry || self.conjugation) => {
                let expected = "pairs where substeps, geometry or conjugation are set";
                Some(("graph", self.graph.to_string(), expected))
            }
            () if self.pushes && substeps == 0 => {
                Some(("pushes", "true".to_owned(), "false where substeps is 0: pushes are part of a substep"))
            }
            () if kicks > 0 && (substeps == 0 || self.layers == 0) => {
                let expected = "0 where substeps or layers are 0: messages of a substep make the forces";
                Some(("kicks", kicks.to_string(), expected))
            }
            () if !self.corrections && kicks == 0 => Some((
                "corrections",
                "false".to_owned(),
                "true where kicks is 0: nothing would move particles",
            )),
            () if !positive(softening) => Some(("softening", softening.to_string(), "greater than 0")),
            () if robust != 0.0 && !positive(robust) => {
                Some(("robust", robust.to_string(), "0, or greater than 0"))
            }
            () if !positive(duration) => Some(("duration", duration.to_string(), "greater than 0")),
            () => None,
        }
    }
}

/// The model: an embedding shared by the grades, rounds of messages over all pairs, and a projection to one
/// multivector per particle, whose vector part is the predicted displacement.
#[derive(Module, DeepClone)]
pub struct NBody {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    projection: MvLinear,
    pushes: Option<Pushes>,
    kicks: Option<Kicks>,
    #[module(skip)]
    config: NBodyConfig,
    #[module(skip)]
    complexes: Complexes,
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
        if let Some((argument, actual, expected)) = config.fault() {
            let expected = expected.to_owned();
            return Err(Error::Argument { operation: "NBody", argument, actual, expected });
        }
        let (inputs, attributes) = match config.graph {
            NBodyGraph::Pairs => (inputs, 1),
            NBodyGraph::Simplices => (SimplicialComplex::lifted(inputs), SimplicialComplex::ATTRIBUTES),
        };
        let attributes = attributes
            + if config.geometry || config.substeps > 0 { GEOMETRY } else { 0 }
            + usize::from(config.kicks > 0);
        let embedding =
            MvLinear::new(inputs, config.hidden, signature).per_grade(false).init(&placement, rng)?;
        let layers = (0..config.layers)
            .map(|_| MessagePassing::init(config.hidden, attributes, signature, &placement, rng))
            .collect::<Result<_>>()?;
        let outputs = 1 + usize::from(config.velocities || config.substeps > 0);
        let mut projection = MvLinear::new(config.hidden, outputs, signature);
        if config.substeps > 0 {
            projection =
                projection.variance((FIRST_STEP * config.duration).powi(2) / config.hidden.max(1) as f64);
        }
        let projection = projection.init(&placement, rng)?;
        let pushes = if config.pushes && config.substeps > 0 {
            Some(Pushes::init(config.hidden, &placement, rng)?)
        } else {
            None
        };
        let kicks = if config.kicks > 0 { Some(Kicks::init(config, &placement, rng)?) } else { None };
        let complexes = Complexes::default();
        Ok(Self { embedding, layers, projection, pushes, kicks, config: *config, complexes })
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
        let start = batch.features.slice(2, 1..CHANNELS)?;
        if self.config.graph == NBodyGraph::Simplices {
            let h = self.simplices(batch)?;
            return self.displaced(batch, &h, &start);
        }
        let h = self.embedding.forward(&batch.features.slice(2, seen)?)?;
        if self.config.substeps > 0 {
            let end = match &self.kicks {
                None => self.integrate(batch, h, &start)?,
                Some(kicks) => self.drive(kicks, batch, h, &start)?,
            };
            let displacement = end.sub(&start)?.slice(0, 1..4)?;
            let velocities =
                if self.config.velocities { Some(channel(&end.slice(0, 1..4)?, 1)?) } else { None };
            return Ok((batch.positions.add(&channel(&displacement, 0)?)?, velocities));
        }
        let geometry = if self.config.geometry { Some(batch.geometry(&start)?) } else { None };
        let (h, _) = self.rounds(h, geometry.as_ref().unwrap_or(&batch.attributes), &batch.edges)?;
        self.displaced(batch, &h, &start)
    }

    /// The features of the particles after all rounds on simplices.
    fn simplices(&self, batch: &NBodyBatch) -> Result<Tensor> {
        let (blades, placement) = (batch.features.shape()[0], self.placement());
        let complex = self.complexes.complete(batch.systems, batch.particles, blades, &placement)?;
        let h = self.embedding.forward(&complex.lift(&batch.features)?)?;
        let (h, _) = self.rounds(h, &complex.attributes, &complex.messages)?;
        Ok(h.slice(1, 0..complex.points)?)
    }

    /// Positions, and velocities if they are predicted, from the last features of the particles.
    fn displaced(&self, batch: &NBodyBatch, h: &Tensor, start: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let shape = batch.positions.shape();
        let channel = |tensor: &Tensor, index: usize| tensor.slice(2, index..index + 1)?.reshape(shape);
        let vectors = self.projection.forward(h)?.slice(0, 1..4)?;
        let positions = batch.positions.add(&channel(&vectors, 0)?)?;
        if !self.config.velocities {
            return Ok((positions, None));
        }
        let velocities = channel(&start.slice(0, 1..4)?, 1)?;
        Ok((positions, Some(velocities.add(&channel(&vectors, 1)?)?)))
    }

    /// Features after all rounds of messages, and the messages of the last round, if there is one.
    fn rounds(&self, h: Tensor, attributes: &Tensor, edges: &Edges) -> Result<(Tensor, Option<Tensor>)> {
        self.layers.iter().try_fold((h, None), |(h, _), layer| {
            let (h, messages) = layer.forward_with_messages(&h, attributes, edges)?;
            Ok((h, Some(messages)))
        })
    }

    /// Positions and velocities `[8, systems × particles, 2]` at the end of the time, as vectors.
    fn integrate(&self, batch: &NBodyBatch, mut h: Tensor, start: &Tensor) -> Result<Tensor> {
        let (nodes, duration) = (start.shape()[1], self.config.duration / self.config.substeps as f64);
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
                // A constant push changes the mean velocity by half as much as the final velocity.
                let push = pushes.forward(&messages, &geometry, &batch.edges)?;
                change = change.add(&concat(&[&push.mul_scalar(duration / 2.0)?, &push], 2)?)?;
            }
            let drift = concat(&[&motion.slice(2, 1..2)?.mul_scalar(duration)?, &still], 2)?;
            motion = motion.add(&drift)?.add(&concat(&[&scalar, &change, &rest], 0)?)?;
        }
        Ok(motion)
    }

    /// As [`integrate`](Self::integrate), with kicks.
    fn drive(&self, kicks: &Kicks, batch: &NBodyBatch, mut h: Tensor, start: &Tensor) -> Result<Tensor> {
        let NBodyConfig { substeps, corrections, duration, .. } = self.config;
        let (nodes, pairs, duration) =
            (start.shape()[1], batch.edges.receivers.len(), duration / substeps as f64);
        let zeros = |blades: usize, count: usize, channels: usize| {
            Tensor::zeros([blades, count, channels], start.dtype(), &start.device())
        };
        let (scalar, rest, of_edges) = (zeros(1, nodes, 2)?, zeros(4, nodes, 2)?, zeros(7, pairs, 1)?);
        let vectors = start.slice(0, 1..4)?;
        let mut motion = Motion {
            loc: vectors.slice(2, 0..1)?,
            vel: vectors.slice(2, 1..2)?,
            encounters: zeros(1, pairs, 1)?,
        };
        let whole = |motion: &Motion| {
            concat(&[&scalar, &concat(&[&motion.loc, &motion.vel], 2)?, &rest], 0).map_err(Error::from)
        };
        for substep in 0..=substeps {
            if substep == substeps && !corrections {
                break;
            }
            let geometry = batch.geometry(&whole(&motion)?)?;
            let encounters = motion.encounters.add_scalar(1.0)?.log()?;
            let attributes = concat(&[&geometry, &concat(&[&encounters, &of_edges], 0)?], 2)?;
            let messages;
            (h, messages) = self.rounds(h, &attributes, &batch.edges)?;
            if corrections {
                let change = self.projection.forward(&h)?.slice(0, 1..4)?.mul(&motion.chaos(batch)?)?;
                motion.loc = motion.loc.add(&change.slice(2, 0..1)?)?;
                motion.vel = motion.vel.add(&change.slice(2, 1..2)?)?;
            }
            if let Some(messages) = messages.filter(|_| substep < substeps) {
                let forces = kicks.forces(&messages, &batch.attributes)?;
                motion = kicks.drive(motion, &forces, &batch.edges, (duration, batch.particles))?;
            }
        }
        whole(&motion)
    }

    /// Mean squared error of the predictions over coordinates, particles and systems; `targets` are true positions `[3, systems ×
    /// particles]`, or these and true velocities `[6, systems × particles]`, which a model of positions ignores. With
    /// [`robust`](NBodyConfig::robust), large errors count less.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); a model of velocities without targets for them.
    pub fn loss(&self, batch: &NBodyBatch, targets: &Tensor) -> Result<Tensor> {
        let (predicted, targets) = match self.outputs(batch)? {
            (positions, None) => (positions, targets.slice(0, 0..3)?),
            (positions, Some(velocities)) => (concat(&[&positions, &velocities], 0)?, targets.clone()),
        };
        let bound = self.config.robust;
        if bound == 0.0 {
            return loss::mean_squared_error(&predicted, &targets);
        }
        let shape = [predicted.shape()[0], batch.systems, batch.particles];
        let errors = predicted.sub(&targets)?.square()?.reshape(shape)?.mean(&[0, 2], false)?;
        let roots = errors.mul_scalar(2.0 / bound)?.add_scalar(1.0)?.sqrt()?.add_scalar(-1.0)?;
        Ok(roots.mean_all()?.mul_scalar(bound)?)
    }

    /// The device and dtype of the parameters.
    pub fn placement(&self) -> Placement {
        let weight = self.projection.weight().array();
        let (device, dtype): (Device, DType) = (weight.device(), weight.dtype());
        Placement { device, dtype }
    }
}
