//! Training steps, and their time.

use crate::{
    error::Result,
    task::{Batch, Task},
};
use gradewise_autograd::Tensor;
use gradewise_nn::train::{Capture, StepReport, Trainer};
use std::time::Instant;

/// The batches of the loader.
pub(super) type Batches<'a, T> = &'a mut dyn Iterator<Item = gradewise_nn::Result<Batch<T>>>;

/// Takes steps as training does, and times them.
pub(super) struct Stepper<T: Task> {
    pub(super) trainer: Trainer<T::Model>,
}

impl<T: Task> Stepper<T> {
    /// Takes steps eagerly, or replays them as a CUDA graph.
    pub(super) fn new(mut trainer: Trainer<T::Model>, capture: bool) -> Self {
        trainer.set_capture(if capture { Capture::Required } else { Capture::Off });
        Self { trainer }
    }

    pub(super) fn step(
        &mut self,
        batches: Batches<'_, T>,
        loss: impl Fn(&T::Model, &Batch<T>) -> gradewise_nn::Result<Tensor>,
    ) -> gradewise_nn::Result<StepReport> {
        self.trainer.step(&mut &mut *batches, loss)
    }

    /// The median seconds of `count` steps after `warm_up` others.
    pub(super) fn seconds(&mut self, batches: Batches<'_, T>, warm_up: usize, count: usize) -> Result<f64> {
        for _ in 0..warm_up {
            self.step(batches, T::loss)?;
        }
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.step(batches, T::loss)?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times[count / 2])
    }
}
