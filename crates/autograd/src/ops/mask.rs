//! Masks: choosing between two tensors, and dropout.

use crate::{Result, Tensor};
use gradewise_kernels::{Array, ops};

impl Tensor {
    /// This tensor where `mask` is not 0, `other` elsewhere, broadcast together. Nothing flows to what is not chosen,
    /// not even a NaN. Masks come from comparisons such as [`ops::greater`].
    ///
    /// # Errors
    /// Shapes that do not broadcast, different dtypes or devices.
    pub fn select(&self, mask: &Array, other: &Tensor) -> Result<Tensor> {
        let output = ops::select(mask, self.array(), other.array())?;
        let mask = mask.clone();
        Tensor::from_op("select", output, &[self, other], move |context, grad| {
            let zero = Tensor::zeros(gradewise_core::Shape::scalar(), grad.dtype(), &grad.device())?;
            let chosen = |index: usize| -> Result<Option<Tensor>> {
                if !context.needs(index) {
                    return Ok(None);
                }
                let part = if index == 0 { grad.select(&mask, &zero)? } else { zero.select(&mask, grad)? };
                part.sum_to(context.inputs[index].shape()).map(Some)
            };
            Ok(vec![chosen(0)?, chosen(1)?])
        })
    }

    /// Zeroes each element with probability `p` and scales the others by 1/(1 − p) (Srivastava et al. 2014).
    ///
    /// The mask follows from `seed`, `stream` and the position of the element only: a recomputation under
    /// [`checkpoint`](crate::checkpoint) gets the same one. Use another `stream` for every layer and step.
    ///
    /// # Errors
    /// `p` outside [0, 1).
    pub fn dropout(&self, p: f64, (seed, stream): (u64, u64)) -> Result<Tensor> {
        let mask = ops::dropout_mask(self.shape(), p, (seed, stream), self.dtype(), &self.device())?;
        if p == 0.0 {
            return Ok(self.clone());
        }
        self.mul(&Tensor::new(mask))
    }
}
