//! Models of a star and its planets: message passing with pair forces, and the published GATr.

use super::{NBody, NBodyBatch, NBodyConfig};
use crate::data::gravity::DURATION;
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::{DType, Device, Shape, ops};
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, Visitor, loss};
use gradewise_transformers::{
    Channels, Space, Streams, TokenBatch,
    gatr::{AttentionConfig, GATr, GATrConfig, JoinReference},
};
use serde::{Deserialize, Serialize};

/// Weight of the transformer's regulariser, which keeps the weights of points at ±1 and unused scalars at 0.
const REGULARISER: f64 = 0.01;
/// What points are divided by in place of a weight below it.
const LEAST_WEIGHT: f64 = 1e-3;
/// Blades of Cl(3,0,1) as bits of its generators: the weight of a point, its coordinates with their signs, the bivectors of a translation.
const WEIGHT: u16 = 0b0111;
const COORDINATES: [(u16, f64); 3] = [(0b1110, -1.0), (0b1101, 1.0), (0b1011, -1.0)];
const TRANSLATION: [u16; 3] = [0b1001, 0b1010, 0b1100];

gradewise_nn::choices! {
    /// The kind of model.
    pub enum GravityKind {
        /// Messages between all pairs in Cl(3,0), which make forces
        Messages = "messages",
        /// GATr, the published transformer in Cl(3,0,1)
        Transformer = "transformer",
    }
}

/// Sizes of [`GravityModel`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GravityConfig {
    /// Which model.
    pub kind: GravityKind,
    /// Multivector features of a body (messages), or multivector channels of a token (transformer).
    pub hidden: usize,
    /// Rounds of messages, or blocks.
    pub layers: usize,
    /// Scalar channels of a token; only for the transformer.
    pub scalars: usize,
    /// Attention heads; only for the transformer.
    pub heads: usize,
    /// As [`NBodyConfig::substeps`]; only for messages.
    pub substeps: usize,
    /// As [`NBodyConfig::kicks`]; only for messages.
    pub kicks: usize,
    /// As [`NBodyConfig::softening`]; only for messages.
    pub softening: f64,
    /// As [`NBodyConfig::corrections`]; only for messages.
    pub corrections: bool,
    /// As [`NBodyConfig::robust`]; only for messages.
    pub robust: f64,
}

impl GravityConfig {
    /// The published settings of the transformer: one multivector and one scalar of each body, in and out.
    pub fn gatr(&self) -> GATrConfig {
        let (ends, hidden) = (Channels::new(1, 1), Channels::new(self.hidden, self.scalars));
        GATrConfig {
            attention: AttentionConfig { num_heads: self.heads, ..AttentionConfig::default() },
            ..GATrConfig::new(self.layers, ends, hidden, ends)
        }
    }

    /// The configuration of the message-passing model.
    pub fn messages(&self) -> NBodyConfig {
        let Self { hidden, layers, substeps, kicks, softening, corrections, robust, .. } = *self;
        let duration = DURATION;
        NBodyConfig {
            hidden,
            layers,
            substeps,
            kicks,
            softening,
            corrections,
            robust,
            duration,
            ..NBodyConfig::default()
        }
    }
}

/// A model that predicts the positions of bodies that attract each other.
#[derive(DeepClone)]
pub enum GravityModel {
    /// Messages between all pairs, with the sender's mass as the attribute of an edge.
    Messages(NBody),
    /// Attention of all bodies to each other (Brehmer et al. 2023, arXiv:2305.18415).
    Transformer(GravityTransformer),
}

impl GravityModel {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory; invalid sizes.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &GravityConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = placement.into();
        Ok(match config.kind {
            GravityKind::Messages => Self::Messages(NBody::init(&config.messages(), placement, rng)?),
            GravityKind::Transformer => Self::Transformer(GravityTransformer::init(config, placement, rng)?),
        })
    }

    /// Predicted positions `[3, systems × bodies]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn forward(&self, batch: &NBodyBatch) -> Result<Tensor> {
        match self {
            Self::Messages(model) => model.forward(batch),
            Self::Transformer(model) => Ok(model.outputs(batch)?.0),
        }
    }

    /// The mean squared error of the predictions; for the transformer, including its regulariser.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn loss(&self, batch: &NBodyBatch, targets: &Tensor) -> Result<Tensor> {
        match self {
            Self::Messages(model) => model.loss(batch, targets),
            Self::Transformer(model) => {
                let (positions, excess) = model.outputs(batch)?;
                let error = loss::mean_squared_error(&positions, &targets.slice(0, 0..3)?)?;
                Ok(error.add(&excess.mul_scalar(REGULARISER)?)?)
            }
        }
    }

    /// The device and dtype of the parameters.
    pub fn placement(&self) -> Placement {
        match self {
            Self::Messages(model) => model.placement(),
            Self::Transformer(model) => model.placement(),
        }
    }
}

impl Module for GravityModel {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Messages(model) => model.visit(visitor),
            Self::Transformer(model) => model.visit(visitor),
        }
    }
}

/// GATr on bodies as published: one multivector for each, the mass (and 1) as its scalar, the position as a point, the velocity as a
/// translation, beside a scalar 0. The prediction is the point that comes out. The model is equivariant under rotations and translations, but
/// not under reflections: input points always have the weight 1, whereas a reflection changes the weight to −1.
///
/// Parameters: those of the published network, under `net`.
#[derive(Module, DeepClone)]
pub struct GravityTransformer {
    net: GATr,
    #[module(skip)]
    space: Space,
}

impl GravityTransformer {
    fn init<R: rand::Rng + ?Sized>(
        config: &GravityConfig,
        placement: Placement,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self { net: GATr::init(&config.gatr(), placement, rng)?, space: Space::projective() })
    }

    /// Predicted positions, and the regulariser: the mean over systems of Σ ((|w| − 1)² + s²) over the weights w of points and the scalars s.
    fn outputs(&self, batch: &NBodyBatch) -> Result<(Tensor, Tensor)> {
        let nodes = batch.positions.shape()[1];
        let input = self.tokens(batch, nodes)?;
        let tokens = TokenBatch::new(batch.systems, batch.particles);
        let output = self.net.forward(&input, &tokens, JoinReference::Data)?;
        let blade = |mask: u16| {
            let index = self.blade(mask)?;
            output.multivectors.slice(0, index..index + 1)?.reshape([1, nodes]).map_err(Error::from)
        };
        let weight = blade(WEIGHT)?;
        // 1 where the weight is large enough to divide by.
        let is_large = ops::add_scalar(&ops::abs(weight.array())?, -LEAST_WEIGHT)?;
        let is_large = ops::clamp(&ops::sign(&is_large)?, 0.0, 1.0)?;
        let least = Tensor::full(Shape::scalar(), LEAST_WEIGHT, weight.dtype(), &weight.device())?;
        let reciprocal = weight.select(&is_large, &least)?.recip()?;
        let coordinate =
            |(mask, sign): (u16, f64)| Ok::<_, Error>(blade(mask)?.mul_scalar(sign)?.mul(&reciprocal)?);
        let [x, y, z] = COORDINATES.map(coordinate);
        let relative = concat(&[&x?, &y?, &z?], 0)?;
        // The network sees positions relative to the mean of the system.
        let before = batch.features.slice(0, 1..4)?.slice(2, 1..2)?.reshape([3, nodes])?;
        let positions = batch.positions.add(&relative.sub(&before)?)?;
        let scalars = output.scalars.reshape([1, nodes])?.square()?;
        let excess = weight.abs()?.add_scalar(-1.0)?.square()?.add(&scalars)?.mean_all()?;
        Ok((positions, excess.mul_scalar(batch.particles as f64)?))
    }

    /// Each body as a token.
    fn tokens(&self, batch: &NBodyBatch, nodes: usize) -> Result<Streams> {
        let row = |blade: usize, channel: usize| {
            let row = batch.features.slice(0, blade..blade + 1)?.slice(2, channel..channel + 1)?;
            row.reshape([1, nodes, 1]).map_err(Error::from)
        };
        let (dtype, device): (DType, Device) = (batch.features.dtype(), batch.features.device());
        let constant = |value: f64| Ok::<_, Error>(Tensor::full([1, nodes, 1], value, dtype, &device)?);
        let mass = row(0, 0)?;
        let mut blades = vec![constant(0.0)?; self.space.algebra().blade_count()];
        blades[0] = mass.add_scalar(1.0)?;
        blades[self.blade(WEIGHT)?] = constant(1.0)?;
        for (axis, ((mask, sign), translation)) in COORDINATES.into_iter().zip(TRANSLATION).enumerate() {
            blades[self.blade(mask)?] = row(1 + axis, 1)?.mul_scalar(sign)?;
            blades[self.blade(translation)?] = row(1 + axis, 2)?.mul_scalar(0.5)?;
        }
        let multivectors = concat(&blades.iter().collect::<Vec<_>>(), 0)?;
        Streams::new(multivectors, constant(0.0)?.reshape([nodes, 1])?)
    }

    fn blade(&self, mask: u16) -> Result<usize> {
        self.space.algebra().blade_of_mask(mask).ok_or_else(|| Error::Argument {
            operation: "GravityTransformer",
            argument: "space",
            actual: format!("an algebra without the blade {mask:#06b}"),
            expected: "Cl(3,0,1)".to_owned(),
        })
    }

    fn placement(&self) -> Placement {
        let parameters = self.named_parameters();
        match parameters.first() {
            Some((_, parameter)) => {
                let array = parameter.array();
                Placement { device: array.device(), dtype: array.dtype() }
            }
            None => Placement::from(&Device::Cpu),
        }
    }
}
