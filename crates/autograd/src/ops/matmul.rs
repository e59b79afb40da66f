//! Matrix products.

use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{Array, ops};

impl Tensor {
    /// The product of the matrices in the last two axes, `[…, m, k]` by `[…, k, n]`; leading axes are broadcast.
    ///
    /// # Errors
    /// Sizes that do not fit, ranks below 2, different dtypes or devices.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_transposed(other, false, false)
    }

    /// [`matmul`](Self::matmul) of the matrices or of their transposes, which are not formed.
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul).
    pub fn matmul_transposed(
        &self,
        other: &Tensor,
        transpose_self: bool,
        transpose_other: bool,
    ) -> Result<Tensor> {
        let attributes = move || {
            Attributes::new().with("transpose_self", transpose_self).with("transpose_other", transpose_other)
        };
        let forward = move |x: &[Array]| Ok(ops::matmul(&x[0], &x[1], transpose_self, transpose_other)?);
        Tensor::operate("matmul", &[self, other], attributes, forward, move |context, grad| {
            let [a, b] = [&context.inputs[0], &context.inputs[1]];
            // With C = A·B: dA = dC·Bᵀ and dB = Aᵀ·dC; transposed if the operand was.
            let grad_a = || match transpose_self {
                false => grad.matmul_transposed(b, false, !transpose_other)?.sum_to(a.shape()),
                true => b.matmul_transposed(grad, transpose_other, true)?.sum_to(a.shape()),
            };
            // One matrix for all rows of the other operand: its gradient is one product, not a sum of many.
            let shared = b.shape().rank() == 2 && a.shape().rank() > 2 && !transpose_self;
            if shared && a.shape().elements() > 0 && grad.shape().elements() > 0 {
                let rows = |tensor: &Tensor| {
                    let columns = tensor.shape()[tensor.shape().rank() - 1];
                    tensor.reshape([tensor.shape().elements() / columns, columns])
                };
                let grad_b = || match transpose_other {
                    false => rows(a)?.matmul_transposed(&rows(grad)?, true, false),
                    true => rows(grad)?.matmul_transposed(&rows(a)?, true, false),
                };
                return Ok(vec![
                    context.needs(0).then(grad_a).transpose()?,
                    context.needs(1).then(grad_b).transpose()?,
                ]);
            }
            let grad_b = || match transpose_other {
                false => a.matmul_transposed(grad, !transpose_self, false)?.sum_to(b.shape()),
                true => grad.matmul_transposed(a, true, transpose_self)?.sum_to(b.shape()),
            };
            Ok(vec![context.needs(0).then(grad_a).transpose()?, context.needs(1).then(grad_b).transpose()?])
        })
    }
}
