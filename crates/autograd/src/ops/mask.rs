//! Masks: choosing between two tensors, and dropout.

use super::{beside, require_beside};
use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{Array, ops};

impl Tensor {
    /// This tensor where `mask` is not 0, `other` elsewhere, broadcast together. Nothing flows to what is not chosen,
    /// not even a NaN. Masks come from comparisons such as [`ops::greater`].
    ///
    /// # Errors
    /// Shapes that do not broadcast, different dtypes or devices.
    pub fn select(&self, mask: &Array, other: &Tensor) -> Result<Tensor> {
        require_beside("select", "mask", &mask.device(), self.array())?;
        let (mask, told, given) = (mask.clone(), mask.clone(), mask.clone());
        let attributes = move || {
            let values = told.to_f64_vec().unwrap_or_default();
            Attributes::new().list("mask", values).list("shape", told.dims())
        };
        let forward = move |x: &[Array]| Ok(ops::select(&beside(&given, &x[0])?, &x[0], &x[1])?);
        Tensor::operate("select", &[self, other], attributes, forward, move |context, grad| {
            let mask = beside(&mask, grad.array())?;
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
    /// [`checkpoint`](crate::checkpoint) gets the same one. Use another `stream` for every layer and step:
    /// [`training_stream`](crate::training_stream) gives one in training, and none in evaluation.
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
