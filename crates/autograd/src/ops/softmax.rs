//! Softmax and its logarithm.

use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{Array, ops};

impl Tensor {
    /// e^(x − max) / Σ e^(x − max) along `axis`; a row of −∞ alone gives zeros.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn softmax(&self, axis: usize) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("axis", axis);
        let forward = move |x: &[Array]| Ok(ops::softmax(&x[0], axis)?);
        Tensor::operate("softmax", &[self], attributes, forward, move |context, grad| {
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
        let attributes = move || Attributes::new().with("axis", axis);
        let forward = move |x: &[Array]| Ok(ops::log_softmax(&x[0], axis)?);
        Tensor::operate("log_softmax", &[self], attributes, forward, move |context, grad| {
            let total = grad.sum(&[axis], true)?;
            Ok(vec![Some(grad.sub(&context.output.exp()?.mul(&total)?)?)])
        })
    }
}
