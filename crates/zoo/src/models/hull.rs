//! Models of the volume of a convex hull in 5 dimensions.

use super::{CL5, HullVolume, MessagePassing, PerceptronConfig};
use crate::data::{Complexes, SimplicialComplex};
use gradewise_autograd::Tensor;
use gradewise_nn::{
    DeepClone, Module, Placement, Result, Visitor,
    layers::{Activation, Layer, Linear, MetricProduct, MvLinear, Sequential},
};
use serde::{Deserialize, Serialize};

/// Added to squared norms, because the square root has no derivative at zero.
const EPSILON: f64 = 1e-12;

gradewise_nn::choices! {
    /// The kind of model.
    pub enum HullKind {
        /// Steerable products of all points at once
        Products = "products",
        /// The same products in a metric that is learned, which leaves reflections of axes of O(5)
        Metric = "metric",
        /// Messages between points, edges and triangles
        Simplices = "simplices",
    }
}

/// Sizes of [`HullModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HullConfig {
    /// Which model.
    #[serde(default = "products")]
    pub kind: HullKind,
    /// Multivector features of the hidden layers.
    pub hidden: usize,
    /// Layers, or rounds of messages.
    pub layers: usize,
}

/// The default for configurations written before `kind` existed.
fn products() -> HullKind {
    HullKind::Products
}

/// A model of the volume of a hull.
#[derive(DeepClone)]
pub enum HullModel {
    /// Products of all points.
    Products(HullVolume),
    /// Messages between simplices.
    Simplices(HullSimplices),
}

impl HullModel {
    /// Draws the parameters for hulls of `points` points.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        points: usize,
        config: &HullConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, HullConfig { kind, hidden, layers }) = (&placement.into(), *config);
        let sizes = PerceptronConfig { hidden, layers };
        Ok(match kind {
            HullKind::Products => Self::Products(HullVolume::init(points, &sizes, placement, rng)?),
            HullKind::Metric => Self::Products(HullVolume::of(points, &sizes, placement, rng, |rng| {
                Ok(Box::new(MetricProduct::init(hidden, CL5, placement, rng)?))
            })?),
            HullKind::Simplices => Self::Simplices(HullSimplices::init(&sizes, placement, rng)?),
        })
    }
}

impl Module for HullModel {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Products(model) => model.visit(visitor),
            Self::Simplices(model) => model.visit(visitor),
        }
    }
}

impl Layer for HullModel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Products(model) => model.forward(x),
            Self::Simplices(model) => model.forward(x),
        }
    }
}

/// Messages between the points, edges and triangles of a sample ([`SimplicialComplex`], Liu et al. 2024, arXiv:2402.10011) with shared
/// weights for all kinds of simplices and messages, whose kind is an input. The norms of each simplex's features go through a perceptron,
/// whose mean over the simplices of a sample is the volume. It is invariant under O(5), translations and permutations of the points.
///
/// 16 points have 696 simplices and 4,080 messages.
#[derive(Module, DeepClone)]
pub struct HullSimplices {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    readout: Sequential,
    output: Linear,
    #[module(skip)]
    complexes: Complexes,
}

impl HullSimplices {
    fn init<R: rand::Rng + ?Sized>(
        config: &PerceptronConfig,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let PerceptronConfig { hidden, layers } = *config;
        let inputs = SimplicialComplex::lifted(1);
        Ok(Self {
            embedding: MvLinear::new(inputs, hidden, CL5).per_grade(false).init(placement, rng)?,
            layers: (0..layers)
                .map(|_| MessagePassing::init(hidden, SimplicialComplex::ATTRIBUTES, CL5, placement, rng))
                .collect::<Result<_>>()?,
            readout: Sequential::new()
                .then(Linear::new(hidden, hidden).init(placement, rng)?)
                .then(Activation::Silu),
            output: Linear::new(hidden, 1).init(placement, rng)?,
            complexes: Complexes::default(),
        })
    }
}

impl Layer for HullSimplices {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let &[blades, samples, points] = x.shape().dims() else {
            // The error of the linear layer names the expected shape.
            return self.embedding.forward(x);
        };
        let placement = Placement::new(&x.device(), x.dtype());
        let complex = self.complexes.complete(samples, points, blades, &placement)?;
        // Centring makes the volume invariant under translations.
        let centered = x.sub(&x.mean(&[2], true)?)?.reshape([blades, samples * points, 1])?;
        let mut h = self.embedding.forward(&complex.lift(&centered)?)?;
        for layer in &self.layers {
            h = layer.forward(&h, &complex.attributes, &complex.messages)?;
        }
        let norms = h.square()?.sum(&[0], false)?.add_scalar(EPSILON)?.sqrt()?;
        let means = self.readout.forward(&norms)?.segment_mean(0, &complex.graphs)?;
        Ok(self.output.forward(&means)?.reshape([samples])?)
    }
}
