//! Softmax and its logarithm.

use crate::{Result, Tensor};
use gradewise_kernels::ops;

impl Tensor {
    /// e^(x − max) / Σ e^(x − max) along `axis`; a row of −∞ alone gives zeros.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn softmax(&self, axis: usize) -> Result<Tensor> {
        let output = ops::softmax(self.array(), axis)?;
        Tensor::from_op("softmax", output, &[self], move |context, grad| {
            let y = context.output;
            let weighted = grad.mul(y)?;
            Ok(vec![Some(weighted.sub(&y.mul(&weighted.sum(&[axis], true)?)?)?)])
        })
    }

    /// The logarithm of [`softmax`](Self::softmax), without forming it.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn log_softmax(&self, axis: usize) -> Result<Tensor> {
        let output = ops::log_softmax(self.array(), axis)?;
        Tensor::from_op("log_softmax", output, &[self], move |context, grad| {
            let total = grad.sum(&[axis], true)?;
            Ok(vec![Some(grad.sub(&context.output.exp()?.mul(&total)?)?)])
        })
    }
}
