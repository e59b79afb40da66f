//! The ordinary linear layer.

use super::Layer;
use crate::{Module, Parameter, Placement, Result};
use gradewise_autograd::Tensor;

/// `x·weight + bias` over the last axis: `[…, in]` → `[…, out]`.
///
/// Parameters: `weight` `[in, out]` with variance 1/in and `bias` `[out]`, zero.
#[derive(Debug, Module)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// Settings of a [`Linear`].
#[derive(Clone, Debug)]
pub struct LinearBuilder {
    inputs: usize,
    outputs: usize,
    bias: bool,
    deviation: Option<f64>,
}

impl Linear {
    /// A map from `inputs` to `outputs` features.
    #[expect(clippy::new_ret_no_self, reason = "a layer is built before it has parameters")]
    pub fn new(inputs: usize, outputs: usize) -> LinearBuilder {
        LinearBuilder { inputs, outputs, bias: true, deviation: None }
    }
}

impl LinearBuilder {
    /// Whether there is a bias (the default).
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Standard deviation of the initial weights, instead of 1/√in.
    #[must_use]
    pub fn deviation(mut self, deviation: f64) -> Self {
        self.deviation = Some(deviation);
        self
    }

    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(self, placement: impl Into<Placement>, rng: &mut R) -> Result<Linear> {
        let placement = placement.into();
        let deviation = self.deviation.unwrap_or_else(|| (self.inputs.max(1) as f64).sqrt().recip());
        let weight = placement.normal([self.inputs, self.outputs], deviation, rng)?;
        let bias = if self.bias { Some(placement.filled([self.outputs], 0.0)?) } else { None };
        Ok(Linear { weight, bias })
    }
}

impl Layer for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let product = x.matmul(&self.weight.tensor())?;
        match &self.bias {
            Some(bias) => Ok(product.add(&bias.tensor())?),
            None => Ok(product),
        }
    }
}
