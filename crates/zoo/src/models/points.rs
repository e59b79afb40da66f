//! The perceptrons of the regression experiments of Ruhe, Brandstetter and Forré (2023, arXiv:2305.11141). Each is a [`Layer`] from
//! points as vectors, `[blades, batch, points]`, to one number per sample, `[batch]`.

use gradewise_autograd::Tensor;
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    layers::{Activation, DynLayer, Layer, Linear, MvLinear, MvSilu, Sequential, SteerableProduct},
};
use serde::{Deserialize, Serialize};

/// The algebra of the experiments in 5 dimensions.
pub const CL5: Signature = Signature::new(5, 0, 0);
/// Multivector features of the O(5) regression.
const O5_FEATURES: usize = 8;
/// Added to squared norms, because the square root has no derivative at zero.
const EPSILON: f64 = 1e-12;

/// Sizes of [`SignedVolume`] and [`HullVolume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerceptronConfig {
    /// Multivector features of the hidden layers.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
}

/// The signed volume of three vectors in space, an O(3)-pseudoscalar.
///
/// A fully connected product of the three vectors to `hidden` features, `layers − 1` times [`MvSilu`], a fully connected product
/// to one; its pseudoscalar part is the prediction, so reflections change the sign by construction.
#[derive(Module, DeepClone)]
pub struct SignedVolume(#[module(flatten)] Sequential);

impl SignedVolume {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &PerceptronConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let PerceptronConfig { hidden, layers } = *config;
        let signature = Signature::CL3;
        let first = SteerableProduct::fully_connected(3, hidden, signature).init(placement, rng)?;
        let mut net = Sequential::new().then(first);
        for _ in 1..layers {
            net = net.then(MvSilu::new(hidden, signature).init(placement)?);
        }
        Ok(Self(net.then(SteerableProduct::fully_connected(hidden, 1, signature).init(placement, rng)?)))
    }
}

impl Layer for SignedVolume {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pseudoscalar = self.0.forward(x)?.slice(0, 7..8)?;
        Ok(pseudoscalar.reshape([x.shape()[1]])?)
    }
}

/// The volume of the convex hull of 16 points in 5 dimensions, an O(5)-scalar.
///
/// A linear map to `hidden` features, shared by the grades, `layers` steerable products, the norms of the multivectors, and a
/// perceptron with one hidden layer of as many units.
#[derive(Module, DeepClone)]
pub struct HullVolume {
    embedding: MvLinear,
    products: Vec<Box<dyn DynLayer>>,
    readout: Sequential,
}

impl HullVolume {
    /// Draws the parameters for hulls of `points` points.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        points: usize,
        config: &PerceptronConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        Self::of(points, config, placement, rng, |rng| {
            Ok(Box::new(SteerableProduct::new(config.hidden, CL5).init(placement, rng)?))
        })
    }

    /// A hull model with the given products.
    pub(super) fn of<R: rand::Rng + ?Sized>(
        points: usize,
        config: &PerceptronConfig,
        placement: &Placement,
        rng: &mut R,
        product: impl Fn(&mut R) -> Result<Box<dyn DynLayer>>,
    ) -> Result<Self> {
        let PerceptronConfig { hidden, layers } = *config;
        Ok(Self {
            embedding: MvLinear::new(points, hidden, CL5).per_grade(false).init(placement, rng)?,
            products: (0..layers).map(|_| product(rng)).collect::<Result<_>>()?,
            readout: Sequential::new()
                .then(Linear::new(hidden, hidden).init(placement, rng)?)
                .then(Activation::Silu)
                .then(Linear::new(hidden, 1).init(placement, rng)?),
        })
    }
}

impl Layer for HullVolume {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let features =
            self.products.iter().try_fold(self.embedding.forward(x)?, |x, layer| layer.forward(&x))?;
        let norms = features.square()?.sum(&[0], false)?.add_scalar(EPSILON)?.sqrt()?;
        Ok(self.readout.forward(&norms)?.reshape([x.shape()[1]])?)
    }
}

/// Sizes of [`O5Regression`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct O5Config {
    /// Units of the two hidden layers of the perceptron.
    pub hidden: usize,
}

/// A function of the invariants of two vectors in 5 dimensions.
///
/// A linear map to 8 features, a steerable product, whose scalar parts are polynomials in the invariants, and a perceptron on these with
/// two hidden layers and rectifiers. The output is scaled to the mean and deviation of the target
/// ([`O5_MEAN`](crate::data::points::O5_MEAN)).
#[derive(Module, DeepClone)]
pub struct O5Regression {
    embedding: MvLinear,
    product: SteerableProduct,
    readout: Sequential,
    #[module(skip)]
    scale: (f64, f64),
}

impl O5Regression {
    /// Draws the parameters for targets of this mean and standard deviation.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &O5Config,
        scale: (f64, f64),
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let hidden = config.hidden;
        Ok(Self {
            embedding: MvLinear::new(2, O5_FEATURES, CL5).per_grade(false).init(placement, rng)?,
            product: SteerableProduct::new(O5_FEATURES, CL5).init(placement, rng)?,
            readout: Sequential::new()
                .then(Linear::new(O5_FEATURES, hidden).init(placement, rng)?)
                .then(Activation::Relu)
                .then(Linear::new(hidden, hidden).init(placement, rng)?)
                .then(Activation::Relu)
                .then(Linear::new(hidden, 1).init(placement, rng)?),
            scale,
        })
    }
}

impl Layer for O5Regression {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let features = self.product.forward(&self.embedding.forward(x)?)?;
        let batch = x.shape()[1];
        let scalars = features.slice(0, 0..1)?.reshape([batch, O5_FEATURES])?;
        let (mean, deviation) = self.scale;
        let output = self.readout.forward(&scalars)?.reshape([batch])?;
        Ok(output.mul_scalar(deviation)?.add_scalar(mean)?)
    }
}
