//! Conversion to another dtype.

use crate::{Result, Tensor};
use gradewise_core::DType;

impl Tensor {
    /// The same values rounded to another dtype; gradients are converted back.
    ///
    /// # Errors
    /// From the device.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        Tensor::from_op("cast", self.array().cast(dtype)?, &[self], |context, grad| {
            Ok(vec![Some(grad.cast(context.inputs[0].dtype())?)])
        })
    }
}
