//! The ordinary linear layer.

use super::Layer;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::Tensor;

/// `x·weight + bias` over the last axis: `[…, in]` → `[…, out]`.
///
/// Parameters: `weight` `[in, out]` with variance 1/in and `bias` `[out]`, zero.
#[derive(Debug, Module, DeepClone)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// Settings of a [`Linear`] from `inputs` to `outputs` features.
#[derive(Clone, Debug, Builder)]
pub struct LinearBuilder {
    inputs: usize,
    outputs: usize,
    /// Whether there is a bias (the default).
    #[builder(default = true)]
    bias: bool,
    /// Standard deviation of the initial weights, instead of 1/√in.
    #[builder(default, strip_option)]
    deviation: Option<f64>,
}

impl Linear {
    /// `[in, out]`.
    pub const fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// `[out]`; `None` for a layer without.
    pub const fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }
}

impl LinearBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(self, placement: impl Into<Placement>, rng: &mut R) -> Result<Linear> {
        at_least_one("Linear", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let placement = placement.into();
        let deviation = self.deviation.unwrap_or_else(|| (self.inputs.max(1) as f64).sqrt().recip());
        let weight = placement.normal([self.inputs, self.outputs], deviation, rng)?;
        let bias = if self.bias { Some(placement.filled([self.outputs], 0.0)?) } else { None };
        Ok(Linear { weight, bias })
    }
}

impl Layer for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("Linear::forward", x, || {
            let product = x.matmul(&self.weight.tensor())?;
            match &self.bias {
                Some(bias) => Ok(product.add(&bias.tensor())?),
                None => Ok(product),
            }
        })
    }
}
