//! RMS normalisation.

use super::prelude::*;

/// Inputs: x, then the weight if there is one.
#[derive(Serialize, Deserialize)]
pub(crate) struct RmsNorm {
    #[serde(with = "attributes::number")]
    epsilon: f64,
}

impl Operation for RmsNorm {
    const NAME: &'static str = "rms_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("x"), Operand::array("weight").optional()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let (x, weight) = (Input::with([batch, features], Values::AwayFromZero), Input::normal([features]));
        let operation = || RmsNorm { epsilon: 1e-5 };
        Ok(vec![Sample::new(operation(), [x.clone()]), Sample::new(operation(), [x, weight])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let ops::layer_norm::RmsNorm { output, inverse_rms } =
            ops::rms_norm(&inputs[0], inputs.get(1), self.epsilon)?;
        Ok(Forward { output, saved: vec![inverse_rms] })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let [inverse_rms] = context.saved(Self::NAME)?;
        let gradients = ops::rms_norm_backward(&inputs[0], inputs.get(1), inverse_rms, grad.array())?;
        Ok(constants(std::iter::once(Some(gradients.x)).chain(inputs.get(1).map(|_| gradients.weight))))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let mean_square = x.square()?.mean(&[x.shape().rank() - 1], true)?;
        let y = x.mul(&mean_square.add_scalar(self.epsilon)?.rsqrt()?)?;
        inputs.get(1).map_or_else(|| Ok(y.clone()), |weight| y.mul(weight))
    }
}

impl Tensor {
    /// x / √(mean of x² + `epsilon`) over the last axis, scaled by `weight` of the size of that axis (Zhang & Sennrich 2019,
    /// arXiv:1910.07467).
    ///
    /// # Errors
    /// A tensor of rank 0; a weight of another shape, dtype or device; an `epsilon` that is negative or NaN.
    pub fn rms_norm(&self, weight: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
        if epsilon.is_nan() || epsilon < 0.0 {
            let message = format!("epsilon is {epsilon}, expected at least 0");
            return Err(Error::Argument { operation: "rms_norm", message });
        }
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(weight).collect();
        Self::apply(RmsNorm { epsilon }, &inputs)
    }
}
