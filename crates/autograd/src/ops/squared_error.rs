//! The mean squared error.

use super::prelude::*;

#[derive(Serialize, Deserialize)]
pub(crate) struct MeanSquaredError;

impl Operation for MeanSquaredError {
    const NAME: &'static str = "mean_squared_error";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("prediction"), Operand::array("target")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        // Of no elements there is no mean.
        let input = Input::normal([sizes.batch.max(1), sizes.features]);
        Ok(vec![Sample::new(MeanSquaredError, [input.clone(), input])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::mean_squared_error(&inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let gradient = ops::mean_squared_error_backward(&inputs[0], &inputs[1], grad.array())?;
        let negative = context.needs(1).then(|| ops::neg(&gradient)).transpose()?;
        Ok(constants([context.needs(0).then_some(gradient), negative]))
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
