//! Recomputation of an observed operation by the reference on the CPU.

use crate::{
    BackwardContext, Forward, Result, Tensor, backend, engine::differentiate, mode, observe::Event,
    without_autocast,
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};

impl Event<'_> {
    /// The same pass of the same inputs, converted to `dtype`, by the reference on the CPU: what belongs to each of
    /// [`outputs`](Self::outputs). `None` for several operations under one name, such as a recomputation, whose parts are seen
    /// themselves.
    ///
    /// # Errors
    /// From the operation, such as a `dtype` other than `f32` and `f64`, which the CPU does not serve.
    pub fn reference(&self, dtype: DType) -> Result<Option<Vec<Array>>> {
        if !self.body().is_whole() {
            return Ok(None);
        }
        let host =
            |tensor: &Tensor| -> Result<Array> { Ok(tensor.array().to_device(&Device::Cpu)?.cast(dtype)?) };
        let arrays = self.inputs.iter().map(|input| host(input)).collect::<Result<Vec<_>>>()?;
        backend::untouched(|| {
            without_autocast(|| {
                mode::with_mode(false, || {
                    let Forward { output, saved } = self.body().forward(&arrays)?;
                    let Some(arriving) = self.arriving else { return Ok(Some(vec![output])) };
                    let leaf = |(array, input): (&Array, &&Tensor)| {
                        let tensor = Tensor::new(array.clone());
                        if input.is_grad_required() { tensor.requires_grad() } else { tensor }
                    };
                    let inputs: Vec<Tensor> = arrays.iter().zip(&self.inputs).map(leaf).collect();
                    let output = Tensor::new(output);
                    let context = BackwardContext::new(&inputs, &output, &saved);
                    let gradients = differentiate(self.body(), &context, &Tensor::new(host(arriving)?))?;
                    let wanted = |&position: &usize| {
                        gradients.get(position)?.as_ref().map(|gradient| gradient.array().clone())
                    };
                    Ok(self.positions.iter().map(wanted).collect::<Option<Vec<_>>>())
                })
            })
        })
    }
}
