//! Conversion to another dtype.

use crate::{Attributes, Result, Tensor};
use gradewise_core::DType;
use gradewise_kernels::Array;

impl Tensor {
    /// The same values rounded to another dtype; gradients are converted back.
    ///
    /// # Errors
    /// From the device.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let attributes = move || Attributes::new().with("dtype", dtype);
        let forward = move |x: &[Array]| Ok(x[0].cast(dtype)?);
        Tensor::operate("cast", &[self], attributes, forward, |context, grad| {
            Ok(vec![Some(grad.cast(context.inputs[0].dtype())?)])
        })
    }
}
