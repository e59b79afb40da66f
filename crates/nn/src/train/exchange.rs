//! Steps that several processes take together.

use super::Batch;
use crate::{Error, Result};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};

/// What makes the same step out of the gradients of several processes: each computes those of its part of a batch, and all
/// take the step that their sum asks for.
///
/// Every process calls [`finish`](Self::finish) once for each step, in the same order.
pub trait Exchange: Send + Sync {
    /// The gradient of the parameter at `position` is complete, while the backward pass goes on: its way to the other processes
    /// may begin. Nothing changes it any more.
    ///
    /// # Errors
    /// What keeps the processes from going on together; the step has then failed.
    fn ready(&self, position: usize, gradient: &Array) -> Result<()>;

    /// Puts the sums over all processes in place of `gradients`, which are in the order of the parameters, and returns that of
    /// `loss`. On a device, work is queued and nothing waited for.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    fn finish(&self, loss: &Array, gradients: &mut [Option<Array>]) -> Result<Array>;

    /// Called once the work of a step is done: whether the sums can be trusted.
    ///
    /// # Errors
    /// If the exchange broke off.
    fn check(&self) -> Result<()>;
}

/// A batch that is a part of a larger one.
///
/// The gradient of a mean over all samples is the sum over the parts of [`weight`](Self::weight) times the gradient of the mean
/// over the part, whatever their sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part<B> {
    /// What is computed with.
    pub batch: B,
    /// The samples of this part over those of the whole; 1 for the whole, 0 for a part that only keeps in step.
    pub weight: f64,
}

impl<B> Part<B> {
    /// A whole batch.
    pub fn whole(batch: B) -> Self {
        Self { batch, weight: 1.0 }
    }

    /// The part's share of the whole's loss, from the mean over its own samples.
    ///
    /// # Errors
    /// From the device.
    pub fn share(&self, mean: Tensor) -> Result<Tensor> {
        if self.weight == 1.0 { Ok(mean) } else { Ok(mean.mul_scalar(self.weight)?) }
    }
}

impl<B: Batch> Batch for Part<B> {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self { batch: self.batch.to_device(device)?, weight: self.weight })
    }

    /// The weight is a constant of captured work.
    fn overwrite(&self, source: &Self) -> Result<bool> {
        if self.weight != source.weight { Ok(false) } else { self.batch.overwrite(&source.batch) }
    }
}

impl Error {
    /// An error of the exchange between processes.
    pub fn exchange(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Exchange { source: Box::new(source) }
    }
}
