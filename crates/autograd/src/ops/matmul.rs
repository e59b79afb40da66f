//! Matrix products.

use crate::{Result, Tensor};
use gradewise_kernels::ops;

impl Tensor {
    /// The product of the matrices in the last two axes, `[…, m, k]` by `[…, k, n]`; leading axes are broadcast.
    ///
    /// # Errors
    /// Sizes that do not fit, ranks below 2, different dtypes or devices.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let output = ops::matmul(self.array(), other.array(), false, false)?;
        Ok(Tensor::from_op("matmul", output, &[self, other], |context, grad| {
            let [a, b] = [&context.inputs[0], &context.inputs[1]];
            let last = |tensor: &Tensor| tensor.shape().rank() - 1;
            let grad_a = if context.needs(0) {
                let transposed = b.transpose(last(b) - 1, last(b))?;
                Some(grad.matmul(&transposed)?.sum_to(a.shape())?)
            } else {
                None
            };
            let grad_b = if context.needs(1) {
                let transposed = a.transpose(last(a) - 1, last(a))?;
                Some(transposed.matmul(grad)?.sum_to(b.shape())?)
            } else {
                None
            };
            Ok(vec![grad_a, grad_b])
        }))
    }
}
