//! The grade-wise linear layer.

use super::Layer;
use crate::{
    Builder, DeepClone, Error, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Signature};

pub use gradewise_autograd::clifford::Bias;

/// A linear map of features that does not mix blades: one matrix per grade, or one shared by all.
///
/// Parameters: `weight` `[grades, in, out]` (`[in, out]` when shared) with variance 1/in, and `bias` `[out]`, zero, on
/// the scalar blade by default (see [`Bias`]).
#[derive(Debug, Module, DeepClone)]
pub struct MvLinear {
    #[module(skip)]
    algebra: Algebra,
    weight: Parameter,
    bias: Option<Parameter>,
    /// The blades that the bias goes to, if there is one.
    #[module(skip)]
    blades: Bias,
}

/// Settings of an [`MvLinear`] from `inputs` to `outputs` features over the algebra of `signature`.
#[derive(Clone, Debug, Builder)]
pub struct MvLinearBuilder {
    inputs: usize,
    outputs: usize,
    signature: Signature,
    /// Whether each grade has a matrix of its own (the default) or all share one.
    #[builder(default = true)]
    per_grade: bool,
    /// Which blades the bias goes to; `None` for no bias.
    #[builder(default = Some(Bias::Scalar))]
    bias: Option<Bias>,
    /// The variance of the initial weights; 1/in by default.
    #[builder(default, strip_option)]
    variance: Option<f64>,
}

impl MvLinear {
    /// The matrices.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }
}

impl MvLinearBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// More generators than are supported, a variance below 0, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<MvLinear> {
        at_least_one("MvLinear", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let placement = placement.into();
        let algebra = Algebra::new(self.signature)?;
        let variance = self.variance.unwrap_or(1.0 / self.inputs.max(1) as f64);
        if !(variance >= 0.0 && variance.is_finite()) {
            return Err(Error::Argument {
                operation: "MvLinear",
                argument: "variance",
                actual: variance.to_string(),
                expected: "at least 0, finite".to_owned(),
            });
        }
        let mut shape = vec![self.inputs, self.outputs];
        if self.per_grade {
            shape.insert(0, algebra.grade_count());
        }
        let weight = placement.normal(shape, variance.sqrt(), rng)?;
        let bias = match self.bias {
            Some(_) => Some(placement.filled([self.outputs], 0.0)?),
            None => None,
        };
        Ok(MvLinear { algebra, weight, bias, blades: self.bias.unwrap_or_default() })
    }
}

impl Layer for MvLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvLinear::forward", x, || {
            let bias = self.bias.as_ref().map(Parameter::tensor);
            let bias = bias.as_ref().map(|bias| (bias, self.blades));
            Ok(clifford::mv_linear(&self.algebra, x, &self.weight.tensor(), bias)?)
        })
    }
}
