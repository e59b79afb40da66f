//! Norms and dropout on ordinary features.

use super::Layer;
use crate::{
    Builder, DeepClone, Error, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, is_training, training_stream};
use gradewise_kernels::ops::layer_norm::EPSILON;
use gradewise_kernels::ops::{RandomStream, attention::AttentionDropout};

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts: (x − μ)/√(σ² + 1e-5)·weight + bias (Ba et
/// al. 2016, arXiv:1607.06450). The variance is computed from centred values.
///
/// Parameters: `weight`, one, and `bias`, zero, both `[features]`.
#[derive(Debug, Module, DeepClone)]
pub struct LayerNorm {
    weight: Parameter,
    bias: Parameter,
}

/// Settings of a [`LayerNorm`] for `features` in the last axis.
#[derive(Clone, Copy, Debug, Builder)]
pub struct LayerNormBuilder {
    features: usize,
}

impl LayerNormBuilder {
    /// Makes the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<LayerNorm> {
        at_least_one("LayerNorm", &[("features", self.features)])?;
        let placement = placement.into();
        let filled = |value| placement.filled([self.features], value);
        Ok(LayerNorm { weight: filled(1.0)?, bias: filled(0.0)? })
    }
}

impl Layer for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("LayerNorm::forward", x, || {
            Ok(x.layer_norm(Some(&self.weight.tensor()), Some(&self.bias.tensor()), EPSILON)?)
        })
    }
}

/// Scales the last axis to mean square 1, then by a weight: x/√(mean of x² + ε)·weight (Zhang & Sennrich 2019, arXiv:1910.07467).
///
/// Parameter: `weight`, one, `[features]`.
#[derive(Debug, Module, DeepClone)]
pub struct RmsNorm {
    weight: Parameter,
    #[module(skip)]
    epsilon: f64,
}

/// Settings of an [`RmsNorm`] for `features` in the last axis.
#[derive(Clone, Copy, Debug, Builder)]
pub struct RmsNormBuilder {
    features: usize,
    /// ε; [`EPSILON`] by default.
    #[builder(default = EPSILON)]
    epsilon: f64,
}

impl RmsNormBuilder {
    /// Makes the parameter.
    ///
    /// # Errors
    /// An ε below 0, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<RmsNorm> {
        at_least_one("RmsNorm", &[("features", self.features)])?;
        let Self { features, epsilon } = self;
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(Error::Argument {
                operation: "RmsNorm",
                argument: "epsilon",
                actual: epsilon.to_string(),
                expected: "at least 0, finite".to_owned(),
            });
        }
        Ok(RmsNorm { weight: placement.into().filled([features], 1.0)?, epsilon })
    }
}

impl Layer for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("RmsNorm::forward", x, || Ok(x.rms_norm(Some(&self.weight.tensor()), self.epsilon)?))
    }
}

/// Zeroes each element with probability `p` and scales the others by 1/(1 − p) in a pass of [`training`](gradewise_autograd::training),
/// such as a step of a [`Trainer`](crate::train::Trainer); the identity in every other pass.
///
/// The masks are a function of the seed, the number of the pass and the number of earlier draws from this seed in the pass. Runs are
/// therefore reproducible on every device, and a resumed run draws the same masks as an uninterrupted one. The layer itself is stateless.
#[derive(Clone, Copy, Debug, Module)]
pub struct Dropout {
    #[module(skip)]
    p: f64,
    #[module(skip)]
    seed: u64,
}

impl Dropout {
    /// With drop probability `p`.
    ///
    /// # Errors
    /// A probability outside 0 ≤ p < 1.
    pub fn new(p: f64, seed: u64) -> Result<Self> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::Argument {
                operation: "Dropout",
                argument: "p",
                actual: p.to_string(),
                expected: "a probability of at least 0 and below 1".to_owned(),
            });
        }
        Ok(Self { p, seed })
    }

    /// Whether a forward pass on this thread would drop anything now.
    pub fn drops(&self) -> bool {
        self.p > 0.0 && is_training()
    }
}

impl Dropout {
    /// For the weights of an attention in this pass: as [`forward`](Layer::forward), it counts as a draw.
    pub(super) fn of_weights(&self) -> Option<AttentionDropout> {
        let stream = training_stream(self.seed).filter(|_| self.p > 0.0)?;
        Some(AttentionDropout { p: self.p, random: RandomStream { seed: self.seed, stream } })
    }
}

impl Layer for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match training_stream(self.seed) {
            Some(stream) if self.p > 0.0 => Ok(x.dropout(self.p, (self.seed, stream))?),
            _ => Ok(x.clone()),
        }
    }
}
