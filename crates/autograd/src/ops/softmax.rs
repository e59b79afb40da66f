//! Softmax and its logarithm.

use super::prelude::*;

/// Less than all numbers that are not −∞, in `f32` too.
const LOWEST: f64 = -3e38;

/// The elements less the largest one along `axis`.
fn shifted(x: &Tensor, axis: usize) -> Result<Tensor> {
    x.sub(&x.max(&[axis], true)?.clamp(LOWEST, f64::INFINITY)?)
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Softmax {
    axis: usize,
}

impl Operation for Softmax {
    const NAME: &'static str = "softmax";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok([0, 1].map(|axis| Sample::new(Softmax { axis }, [Input::normal(matrix(sizes))])).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::softmax(&inputs[0], self.axis)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let y = context.output;
        let weighted = grad.mul(y)?;
        Ok(vec![Some(weighted.sub(&y.mul(&weighted.sum(&[self.axis], true)?)?)?)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let powers = shifted(&inputs[0], self.axis)?.exp()?;
        // The largest power is 1, so that the sum is less only if all are 0.
        powers.div(&powers.sum(&[self.axis], true)?.clamp(1.0, f64::INFINITY)?)
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct LogSoftmax {
    axis: usize,
}

impl Operation for LogSoftmax {
    const NAME: &'static str = "log_softmax";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok([0, 1].map(|axis| Sample::new(LogSoftmax { axis }, [Input::normal(matrix(sizes))])).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::log_softmax(&inputs[0], self.axis)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let total = grad.sum(&[self.axis], true)?;
        Ok(vec![Some(grad.sub(&context.output.exp()?.mul(&total)?)?)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let shifted = shifted(&inputs[0], self.axis)?;
        shifted.sub(&shifted.exp()?.sum(&[self.axis], true)?.log()?)
    }
}

impl Tensor {
    /// e^(x − max) / Σ e^(x − max) along `axis`; a row of −∞ alone gives zeros.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn softmax(&self, axis: usize) -> Result<Tensor> {
        Self::apply(Softmax { axis }, &[self])
    }

    /// The logarithm of [`softmax`](Self::softmax), without forming it.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn log_softmax(&self, axis: usize) -> Result<Tensor> {
        Self::apply(LogSoftmax { axis }, &[self])
    }
}
