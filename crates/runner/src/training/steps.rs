//! The mode of a run's steps: captured or eager, observed or not.

use crate::{
    error::Result,
    task::{Batch, Task, TaskConfig},
};
use gradewise_autograd::{Tensor, backend::is_anything_chosen, detect_anomalies, trace};
use gradewise_kernels::{Device, Fusion, debug};
use gradewise_nn::train::{Batch as _, Capture, Part, StepReport, Trainer};
use std::marker::PhantomData;

/// Takes the steps of a run.
pub struct Steps<T: Task> {
    place: Device,
    /// Whether every result is checked.
    watched: bool,
    /// Whether a step whose results are not finite is recomputed with checks.
    again: bool,
    /// Batches of a step.
    accumulation: usize,
    task: PhantomData<T>,
}

impl<T: Task> Steps<T> {
    /// Prepares a trainer for the steps that the settings ask for.
    ///
    /// # Errors
    /// Unknown implementations.
    pub fn new(config: &TaskConfig<T>, device: &Device, trainer: &mut Trainer<T::Model>) -> Result<Self> {
        let watched = debug::is_on();
        // Work that may synchronise with the host cannot be captured, and a graph does not log its operations.
        let chosen = is_anything_chosen().map_err(gradewise_nn::Error::from)?;
        let eager = watched || chosen || trace::is_on();
        trainer.set_capture(if config.train.capture && !eager { Capture::Required } else { Capture::Off });
        trainer.set_fusion(Fusion::from_switch(config.train.fuse));
        let again = config.runtime.detect_anomaly && !watched;
        let accumulation = config.train.trainer.accumulation;
        Ok(Self { place: device.clone(), watched, again, accumulation, task: PhantomData })
    }

    /// # Errors
    /// From the step.
    pub fn take(
        &mut self,
        trainer: &mut Trainer<T::Model>,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
    ) -> gradewise_nn::Result<StepReport> {
        let report = match (self.watched, self.again) {
            (true, _) => detect_anomalies(|| self.step(trainer, batches)),
            (false, true) => self.step_and_look(trainer, batches),
            (false, false) => self.step(trainer, batches),
        };
        report.map_err(|error| trainer.explained(error))
    }

    fn loss(model: &T::Model, part: &Part<Batch<T>>) -> gradewise_nn::Result<Tensor> {
        part.share(T::loss(model, &part.batch)?)
    }

    fn step(
        &mut self,
        trainer: &mut Trainer<T::Model>,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
    ) -> gradewise_nn::Result<StepReport> {
        trainer.step(batches, Self::loss)
    }

    /// Takes a step. If it was skipped because results were not finite, recomputes it with a check of every result, from the same weights.
    /// Checking every result of every step would take several times as long.
    fn step_and_look(
        &mut self,
        trainer: &mut Trainer<T::Model>,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
    ) -> gradewise_nn::Result<StepReport> {
        let given = batches.by_ref().take(self.accumulation).collect::<gradewise_nn::Result<Vec<_>>>()?;
        // No copy: the parts are on the host already.
        let report = self.step(trainer, &mut given.iter().map(|part| part.to_device(&Device::Cpu)))?;
        if report.skipped {
            detect_anomalies(|| {
                trainer.look(given.iter().map(|part| part.to_device(&self.place)), Self::loss)
            })?;
        }
        Ok(report)
    }
}
