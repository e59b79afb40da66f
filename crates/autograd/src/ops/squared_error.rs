//! The mean squared error.

use crate::{BackwardContext, Function, Result, Tensor};
use gradewise_kernels::{Array, ops};

struct MeanSquaredError;

impl Function for MeanSquaredError {
    fn name(&self) -> &'static str {
        "mean_squared_error"
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((ops::mean_squared_error(&inputs[0], &inputs[1])?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let gradient = ops::mean_squared_error_backward(&inputs[0], &inputs[1], grad)?;
        let negative = context.needs(1).then(|| ops::neg(&gradient)).transpose()?;
        Ok(vec![context.needs(0).then_some(gradient), negative])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].sub(&inputs[1])?.square()?.mean_all()
    }
}

impl Tensor {
    /// The mean of (self − target)² over all elements, a scalar.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that differ.
    pub fn mean_squared_error(&self, target: &Tensor) -> Result<Tensor> {
        Self::apply(MeanSquaredError, &[self, target])
    }
}
