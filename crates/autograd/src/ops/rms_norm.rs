//! RMS normalisation.

use crate::{Attributes, BackwardContext, Error, Function, Result, Tensor};
use gradewise_kernels::{Array, ops};

/// Inputs: x, then the weight if there is one.
struct RmsNorm {
    epsilon: f64,
}

impl Function for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn attributes(&self) -> Attributes {
        Attributes::new().with("epsilon", self.epsilon)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let ops::layer_norm::RmsNorm { output, inverse_rms } =
            ops::rms_norm(&inputs[0], inputs.get(1), self.epsilon)?;
        Ok((output, vec![inverse_rms]))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let gradients = ops::rms_norm_backward(&inputs[0], inputs.get(1), &context.saved()[0], grad)?;
        Ok(std::iter::once(Some(gradients.x)).chain(inputs.get(1).map(|_| gradients.weight)).collect())
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
