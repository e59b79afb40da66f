//! Data parallelism: steps that several processes take together.

use super::Batch;
use crate::{Error, Result};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};

/// The all-reduce of gradients. Each process computes the gradients of its part of a batch, and all take the same step with their sum.
///
/// Every process calls [`finish`](Self::finish) once for each step, in the same order.
pub trait Exchange: Send + Sync {
    /// The number of this process, from 0. It decides, beside the number of the step, which features dropout drops here.
    fn rank(&self) -> usize {
        0
    }

    /// Called during the backward pass once the gradient of the parameter at `position` is final, so that its transfer may begin.
    ///
    /// # Errors
    /// A failure of communication; the step has then failed.
    fn ready(&self, position: usize, gradient: &Array) -> Result<()>;

    /// Replaces `gradients`, which are in the order of the parameters, by their sums over all processes, and returns the sum of `loss`. On
    /// a device, the work is queued without waiting.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    fn finish(&self, loss: &Array, gradients: &mut [Option<Array>]) -> Result<Array>;

    /// Called when the work of a step has completed, to check whether the exchange succeeded.
    ///
    /// # Errors
    /// If the exchange failed.
    fn check(&self) -> Result<()>;
}

/// A batch that is a part of a larger one.
///
/// The gradient of a mean over all samples is the sum over the parts of [`weight`](Self::weight) times the gradient of the mean
/// over the part, whatever their sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part<B> {
    /// The samples of this part.
    pub batch: B,
    /// The samples of this part over those of the whole; 1 for the whole, 0 for a part without samples, which takes part only to stay
    /// synchronised.
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

    /// Captured work holds the weight as a constant, so parts of another weight do not fit.
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
