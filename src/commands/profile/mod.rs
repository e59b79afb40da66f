//! `profile`: where the time of a training step goes.

mod record;
mod report;
mod speed;
mod stepper;

use super::train::trainer_of;
use crate::{
    cli::Profile as Arguments,
    error::{Error, Result},
    output, run,
    tasks::{self, Batch, Task, TaskConfig, with_task},
};
use gradewise_bench::{
    Ceilings,
    gpu::{self, Timer, Vendor},
    profile::{Grouping, Profile, host_ceilings},
};
use gradewise_kernels::{Compute, DType, Device};
use gradewise_nn::{
    Module, Placement,
    checkpoint::Checkpoint,
    data::{Split, loader::BatchOrder},
    train::{CapturedStep, Samples, Trainer, batches},
};
use record::record;
use report::Report;
use speed::Speed;
use std::sync::Arc;
use stepper::Stepper;

pub fn run(arguments: &Arguments) -> Result<()> {
    with_task!(&arguments.task, T => profile::<T>(arguments))
}

fn profile<T: Task>(arguments: &Arguments) -> Result<()> {
    let config = tasks::configure::<T>(arguments.preset.as_deref(), &arguments.settings)?;
    let placement = run::placement(&config.runtime)?;
    let data = Arc::new(T::load(&config.data, Split::Train)?);
    let (steps, warm_up) = (arguments.steps.max(1) as usize, arguments.warm_up.max(1) as usize);
    let trainer = || trainer::<T>(arguments, &config, &placement);
    let load = |batch_size: usize| loader::<T>(&data, &config, batch_size, &placement);
    let mut eager = Stepper::<T>::new(trainer()?, &placement.device, false);
    let parameters = eager.trainer.model().parameter_count();
    let batch_size = config.train.batch_size;
    let mut batches = load(batch_size)?;
    let eager_seconds = eager.seconds(&mut batches, warm_up, steps)?;
    let recorded = record::<T>(&mut eager, &mut batches, &placement.device, steps, eager_seconds)?;
    drop(eager);

    let ceilings = ceilings(&placement)?;
    let grouping = if arguments.by_operation { Grouping::Operations } else { Grouping::Shapes };
    let profile =
        Profile::new(&recorded.recordings, recorded.step_seconds, ceilings, grouping).map_err(failed)?;
    let mut speed = Speed { eager: eager_seconds, device: None, captured: None, kernels: None, twice: None };
    if let Device::Cuda(_) = &placement.device {
        speed.device = Some(profile.step_seconds);
        let mut captured = Stepper::<T>::new(trainer()?, &placement.device, true);
        match captured.seconds(&mut batches, warm_up + 1, steps) {
            Ok(seconds) => {
                speed.captured = Some(seconds);
                let nodes = captured.captured.as_ref().map(CapturedStep::node_count).transpose();
                speed.kernels = nodes?.flatten();
            }
            Err(error) => output::note(&format!("the step cannot be captured: {error}")),
        }
    }
    drop(batches);
    if 2 * batch_size <= data.len() {
        let mut stepper = Stepper::<T>::new(trainer()?, &placement.device, speed.captured.is_some());
        speed.twice = Some(stepper.seconds(&mut load(2 * batch_size)?, warm_up + 1, steps)?);
    }

    let task = T::NAME;
    let mixed = run::mixed_precision(&config.runtime)?.map(|mixed| mixed.policy.dtype().to_string());
    Report { task, placement, mixed, batch_size, parameters, profile, recorded, speed }.write(arguments)
}

fn trainer<T: Task>(
    arguments: &Arguments,
    config: &TaskConfig<T>,
    placement: &Placement,
) -> Result<Trainer<T::Model>> {
    let model = match &arguments.checkpoint {
        Some(path) => tasks::load_model::<T>(&Checkpoint::read(path)?, placement)?,
        None => tasks::new_model::<T>(&config.model, placement, config.train.seed)?,
    };
    trainer_of::<T>(model, config, run::mixed_precision(&config.runtime)?.as_ref())
}

/// Batches as in training.
fn loader<T: Task>(
    data: &Arc<T::Data>,
    config: &TaskConfig<T>,
    batch_size: usize,
    placement: &Placement,
) -> Result<impl Iterator<Item = gradewise_nn::Result<Batch<T>>> + use<T>> {
    let order = BatchOrder::sequential(data.len(), batch_size)?.shuffled(config.train.seed).drop_last()?;
    Ok(batches(Arc::clone(data), &order, 0, &run::loading(placement))?)
}

/// What the device can do in the arithmetic of the run.
fn ceilings(placement: &Placement) -> Result<Ceilings> {
    match &placement.device {
        Device::Cpu => host_ceilings(&[placement.dtype]).map_err(failed),
        Device::Cuda(cuda) => {
            let vendor = Vendor::open(cuda).ok();
            let mut arithmetics = vec![(placement.dtype, Compute::current())];
            // What mixed precision computes in.
            if placement.dtype == DType::F32 {
                arithmetics.push((DType::BF16, Compute::Exact));
            }
            gpu::ceilings(&Timer::new(cuda, 2, 8), vendor.as_ref(), &arithmetics).map_err(failed)
        }
    }
}

fn failed(error: gradewise_bench::Error) -> Error {
    use gradewise_bench::Error as Bench;
    match error {
        Bench::Kernels(error) => error.into(),
        Bench::Nn(error) => error.into(),
        Bench::Autograd(error) => gradewise_nn::Error::from(error).into(),
        other => Error::Failed(other.to_string()),
    }
}
