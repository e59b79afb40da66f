//! One application of an operator: candle's custom operations of one, two and three inputs.

#[cfg(feature = "cuda")]
use crate::gpu::{Gpu, Slice};
use crate::{
    host::{Host, Taken},
    place::{on_host, with_arrays},
    target::Target,
};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Device, Error as CandleError, Layout,
    MetalStorage, Result, Shape, Tensor, op::BackpropOp,
};
use gradewise_autograd::{Kept, Prepared};
use gradewise_core::Shape as ArrayShape;
use gradewise_kernels::{Array, ops};
use std::sync::{Mutex, PoisonError};

/// An operator between its forward and its backward pass. candle's graph keeps it if a gradient may be asked for.
pub(crate) struct Call {
    prepared: Prepared,
    /// The inputs as candle has them.
    given: Vec<Tensor>,
    /// The shapes of the operator's inputs that the last one of `given` is joined of; empty if it is one input itself.
    joined: Vec<ArrayShape>,
    /// What the forward pass left for the backward pass.
    saved: Mutex<Option<Vec<Array>>>,
}

impl Call {
    /// A call with the inputs `given`, of which the last one is `joined` of several if there are any.
    pub fn new(prepared: Prepared, given: &[&Tensor], joined: &[&Tensor]) -> Self {
        let given = given.iter().map(|&tensor| tensor.clone()).collect();
        let joined = joined.iter().map(|tensor| ArrayShape::from(tensor.dims())).collect();
        Self { prepared, given, joined, saved: Mutex::new(None) }
    }

    /// The operator's inputs, of arrays over those that candle has.
    fn inputs(&self, mut given: Vec<Array>) -> Result<Vec<Array>> {
        if self.joined.is_empty() {
            return Ok(given);
        }
        let Some(pack) = given.pop() else { return Ok(given) };
        let mut start = 0;
        for shape in &self.joined {
            let end = start + shape.elements();
            let part = pack.slice(0, start..end).and_then(|part| part.reshape(shape));
            given.push(part.map_err(CandleError::wrap)?);
            start = end;
        }
        Ok(given)
    }

    /// The operator's result on `target`, of arrays over the inputs that candle has.
    fn forward<T: Target>(&self, given: Vec<Array>, target: &T) -> Result<(T::Storage, Shape)> {
        let inputs = self.inputs(given)?;
        let forward = target.run(inputs[0].dtype(), || self.prepared.forward(&inputs))?;
        let Kept { output, saved } = forward.map_err(CandleError::wrap)?;
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = saved;
        drop(inputs);
        let shape = Shape::from(output.dims());
        Ok((target.storage(output)?, shape))
    }

    fn on_host(&self, given: &[(&CpuStorage, &Layout)]) -> Result<(CpuStorage, Shape)> {
        let operation = self.prepared.name();
        let places = given.iter().zip(&self.given).enumerate();
        let arrays = places.map(|(input, ((storage, layout), tensor))| {
            on_host(Origin { operation, input }, storage, layout, tensor)
        });
        let (Taken(storage), shape) = self.forward(arrays.collect::<Result<_>>()?, &Host)?;
        Ok((storage, shape))
    }

    #[cfg(feature = "cuda")]
    fn on_cuda(&self, given: &[(&CudaStorage, &Layout)]) -> Result<(CudaStorage, Shape)> {
        let operation = self.prepared.name();
        let Some((first, _)) = given.first() else { return Err(self.elsewhere()) };
        let gpu = Gpu::new(&first.device)?;
        let places = given.iter().zip(&self.given).enumerate();
        let arrays = places.map(|(input, ((storage, layout), tensor))| {
            gpu.array(Origin { operation, input }, storage, layout, tensor)
        });
        let (Slice(storage), shape) = self.forward(arrays.collect::<Result<_>>()?, &gpu)?;
        Ok((storage, shape))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_cuda(&self, _: &[(&CudaStorage, &Layout)]) -> Result<(CudaStorage, Shape)> {
        Err(self.elsewhere())
    }

    /// The gradients of the inputs as candle has them, of those that candle's graph reaches.
    fn backward(&self, result: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mut tensors: Vec<&Tensor> = self.given.iter().collect();
        tensors.extend([result, grad]);
        let mut gradients = Vec::new();
        with_arrays(self.prepared.name(), &tensors, &mut |arrays| {
            gradients = match result.device() {
                #[cfg(feature = "cuda")]
                Device::Cuda(device) => self.gradients(arrays, &Gpu::new(device)?)?,
                Device::Cpu => self.gradients(arrays, &Host)?,
                _ => return Err(self.elsewhere()),
            };
            Ok(())
        })?;
        Ok(gradients)
    }

    fn gradients(&self, arrays: &[Array], target: &impl Target) -> Result<Vec<Option<Tensor>>> {
        let [given @ .., output, grad] = arrays else { return Ok(Vec::new()) };
        let inputs = self.inputs(given.to_vec())?;
        let alone = if self.joined.is_empty() { self.given.len() } else { self.given.len() - 1 };
        let needs: Vec<bool> =
            (0..inputs.len()).map(|input| self.given[input.min(self.given.len() - 1)].track_op()).collect();
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let gradients = target.run(inputs[0].dtype(), || {
            let mut gradients = self.prepared.backward(&inputs, output, saved, grad, &needs)?;
            if !self.joined.is_empty() {
                let parts = gradients.split_off(alone);
                gradients.push(needs[alone].then(|| join(&parts, &inputs[alone..])).transpose()?);
            }
            Ok::<_, gradewise_autograd::Error>(gradients)
        })?;
        let tensor = |gradient: Option<Array>| {
            let Some(gradient) = gradient else { return Ok(None) };
            let shape = Shape::from(gradient.dims());
            let storage = target.storage(gradient)?.into();
            Ok(Some(Tensor::from_storage(storage, shape, BackpropOp::none(), false)))
        };
        gradients.map_err(CandleError::wrap)?.into_iter().map(tensor).collect()
    }
}

/// Gradients of `inputs` one behind the other, as the inputs were joined.
fn join(gradients: &[Option<Array>], inputs: &[Array]) -> gradewise_autograd::Result<Array> {
    let flat = gradients.iter().zip(inputs).map(|(gradient, input)| match gradient {
        Some(gradient) => gradient.reshape([gradient.elements()]),
        None => Array::zeros([input.elements()], input.dtype(), &input.device()),
    });
    let flat = flat.collect::<gradewise_kernels::Result<Vec<_>>>()?;
    Ok(ops::concat(&flat.iter().collect::<Vec<_>>(), 0)?)
}

/// One of candle's traits of custom operations, which differ in the number of inputs alone.
macro_rules! custom_operation {
    ($trait:ident, $($storage:ident $layout:ident $argument:ident $gradient:ident),+; $gradients:ty) => {
        impl $trait for Call {
            fn name(&self) -> &'static str {
                self.prepared.name()
            }

            fn cpu_fwd(&self, $($storage: &CpuStorage, $layout: &Layout),+) -> Result<(CpuStorage, Shape)> {
                self.on_host(&[$(($storage, $layout)),+])
            }

            fn cuda_fwd(&self, $($storage: &CudaStorage, $layout: &Layout),+) -> Result<(CudaStorage, Shape)> {
                self.on_cuda(&[$(($storage, $layout)),+])
            }

            fn metal_fwd(&self, $($storage: &MetalStorage, $layout: &Layout),+) -> Result<(MetalStorage, Shape)> {
                $(let _ = ($storage, $layout);)+
                Err(self.elsewhere())
            }

            fn bwd(&self, $($argument: &Tensor,)+ result: &Tensor, grad: &Tensor) -> Result<$gradients> {
                // The inputs are those that the call keeps.
                $(let _ = $argument;)+
                let mut gradients = self.backward(result, grad)?.into_iter();
                $(let $gradient = gradients.next().flatten();)+
                Ok(($($gradient),+))
            }
        }
    };
}

custom_operation!(CustomOp1, s1 l1 a1 g1; Option<Tensor>);
custom_operation!(CustomOp2, s1 l1 a1 g1, s2 l2 a2 g2; (Option<Tensor>, Option<Tensor>));
custom_operation!(
    CustomOp3, s1 l1 a1 g1, s2 l2 a2 g2, s3 l3 a3 g3; (Option<Tensor>, Option<Tensor>, Option<Tensor>)
);

impl Call {
    /// The error for inputs that are on none of the devices that are served.
    fn elsewhere(&self) -> CandleError {
        let operation = self.prepared.name();
        let device = self.given[0].device().location();
        Origin { operation, input: 0 }.elsewhere(device)
    }
}
