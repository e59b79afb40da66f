//! Batches: the input of training steps.

use crate::Result;
use gradewise_autograd::Tensor;
use gradewise_kernels::{Device, ops};

/// The input of a training step on a device, whether or not the step is captured into a CUDA graph.
pub trait Batch: Sized {
    /// The same values on `device`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn to_device(&self, device: &Device) -> Result<Self>;

    /// Puts the values of `source`, which may be on the host, in place of this batch's own, so that captured work which
    /// reads this batch sees them. `false`, and nothing changed, if their shapes or structure differ.
    ///
    /// # Errors
    /// From the device.
    fn overwrite(&self, source: &Self) -> Result<bool>;

    /// The same samples with their inputs multiplied by `factor`, and their targets as they are; `None` if inputs have no scale, such as
    /// those of text.
    ///
    /// # Errors
    /// From the device.
    fn scaled(&self, _factor: f64) -> Result<Option<Self>> {
        Ok(None)
    }
}

/// The same values on `device` in storage of their own, for captured work to read: whoever overwrites it changes no tensor of the caller,
/// also where `batch` is on that device already.
///
/// # Errors
/// As [`Batch::to_device`].
pub(crate) fn own_copy<B: Batch>(batch: &B, device: &Device) -> Result<B> {
    // By way of the host: between two places, `to_device` always copies.
    batch.to_device(&Device::Cpu)?.to_device(device)
}

/// No input: the loss captures all its data.
impl Batch for () {
    fn to_device(&self, _: &Device) -> Result<Self> {
        Ok(())
    }

    fn overwrite(&self, (): &Self) -> Result<bool> {
        Ok(true)
    }
}

/// Inputs alone.
impl Batch for Tensor {
    fn to_device(&self, device: &Device) -> Result<Self> {
        to_device(self, device)
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        overwrite(&[(self, source)])
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        scaled(self, factor).map(Some)
    }
}

/// Inputs and targets.
impl Batch for (Tensor, Tensor) {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok((to_device(&self.0, device)?, to_device(&self.1, device)?))
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        overwrite(&[(&self.0, &source.0), (&self.1, &source.1)])
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some((scaled(&self.0, factor)?, self.1.clone())))
    }
}

/// A tensor without history, multiplied by a number: what [`Batch::scaled`] does with each input.
///
/// # Errors
/// From the device.
pub fn scaled(tensor: &Tensor, factor: f64) -> Result<Tensor> {
    Ok(Tensor::new(ops::mul_scalar(tensor.array(), factor)?))
}

/// The same values on `device`, without history: what a [`Batch`] does with each of its tensors.
///
/// # Errors
/// A dtype the device does not serve, or no memory.
pub fn to_device(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    Ok(Tensor::new(tensor.array().to_device(device)?))
}

/// Overwrites the first tensor of each pair by the second; `false`, and nothing changed, if shapes or dtypes of one differ.
///
/// # Errors
/// From the device.
pub fn overwrite(pairs: &[(&Tensor, &Tensor)]) -> Result<bool> {
    if pairs
        .iter()
        .any(|(target, source)| target.shape() != source.shape() || target.dtype() != source.dtype())
    {
        return Ok(false);
    }
    for (target, source) in pairs {
        target.array().overwrite_shared(source.array())?;
    }
    Ok(true)
}
