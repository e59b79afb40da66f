//! `profile`: where the time of a training step goes.

mod record;
mod report;
mod speed;
mod stepper;

use crate::{
    TaskCommand,
    error::{Error, Result},
    options::Settings,
    output,
    run::{self, Target},
    task::{self, Batch, Task, TaskConfig},
    training::trainer_of,
};
use clap::Args;
use gradewise_bench::{
    Ceilings,
    gpu::{self, Timer, Vendor},
    profile::{Grouping, Profile, host_ceilings},
};
use gradewise_kernels::{Compute, DType, Device, Fusion};
use gradewise_nn::{
    Module, Placement,
    data::{Split, loader::BatchOrder},
    train::{Samples, Trainer, batches},
};
use record::record;
use report::Report;
use speed::{Replayed, Speed};
use std::{path::PathBuf, sync::Arc};
use stepper::Stepper;

/// See where the time of a training step goes: operation by operation, beside what the device can do.
///
/// Takes steps as `train` would and prints for each operation and pass: calls, time, share of the step, minimum bytes of memory traffic,
/// the achieved rates, and their share of the roofline (measured copies and matrix products of the same device). Times are by CUDA events,
/// with the device kept busy so that it never waits for the host; on the CPU by its clock. Then prints the parts of a step with their
/// memory, the cost of launches, and whether capture or larger batches would help.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise profile nbody
  gradewise profile nbody --preset paper --device cuda --trace trace.json --svg profile.svg
  gradewise profile gpt --device cuda --precision bf16 --by-operation --limit 10
  gradewise profile hulls --checkpoint runs/hulls-1/checkpoint.safetensors --json")]
pub struct Arguments {
    /// The experiment: one that `train --help` lists.
    pub task: String,
    /// Settings under a name.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Weights to use instead of fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Number of measured steps.
    #[arg(long, default_value_t = 5)]
    pub steps: u32,
    /// Number of warm-up steps.
    #[arg(long, default_value_t = 5)]
    pub warm_up: u32,
    /// Rows of the table; the others are summed in one.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// One row for each operation, whatever its shapes.
    #[arg(long)]
    pub by_operation: bool,
    /// Write the recorded steps for https://ui.perfetto.dev or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw the time of the first --limit operations as bars, the longest first. The dark part of a bar is the least time that the device
    /// allows. An earlier such figure is replaced, any other file only with --overwrite.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Replace whatever files --trace and --svg name.
    #[arg(long)]
    pub overwrite: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Arguments {
    const NAME: &'static str = "profile";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        Ok(Some((self.task.clone(), ())))
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        profile::<T>(self)
    }
}

fn profile<T: Task>(arguments: &Arguments) -> Result<()> {
    let config = task::configure::<T>(arguments.preset.as_deref(), &arguments.settings)?;
    if let Some(trace) = &arguments.trace {
        Target::new("--trace", trace, arguments.overwrite).require_free(&[], report::is_trace)?;
    }
    match &arguments.svg {
        Some(path) => Target::new("--svg", path, arguments.overwrite).require_free(&[], report::is_figure)?,
        None if arguments.overwrite && arguments.trace.is_none() => {
            return Err(Error::Usage("--overwrite is for the files of --trace and --svg".to_owned()));
        }
        None => {}
    }
    let placement = run::placement(&config.runtime)?;
    let data = Arc::new(T::load(&config.data, Split::Train)?);
    let (steps, warm_up) = (arguments.steps.max(1) as usize, arguments.warm_up.max(1) as usize);
    let trainer = || trainer::<T>(arguments, &config, &data, &placement);
    let load = |batch_size: usize| loader::<T>(&data, &config, batch_size, &placement);
    let mut eager = Stepper::<T>::new(trainer()?, false);
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
    let mut speed = Speed { eager: eager_seconds, device: None, captured: None, fused: None, twice: None };
    if let Device::Cuda(_) = &placement.device {
        speed.device = Some(profile.step_seconds);
        let mut replayed = |fusion| -> Result<Option<Replayed>> {
            let mut captured = Stepper::<T>::new(trainer()?, true);
            captured.trainer.set_fusion(fusion);
            match captured.seconds(&mut batches, warm_up + 1, steps) {
                Ok(seconds) => {
                    let launches = captured.trainer.captured_nodes::<Batch<T>>()?;
                    Ok(launches.map(|launches| Replayed { seconds, launches }))
                }
                Err(error) => {
                    output::note(&format!("the step cannot be captured: {error}"));
                    Ok(None)
                }
            }
        };
        speed.captured = replayed(Fusion::Off)?;
        if speed.captured.is_some() && config.train.fuse {
            speed.fused = replayed(Fusion::On)?;
        }
    }
    drop(batches);
    if 2 * batch_size <= data.len() {
        let mut stepper = Stepper::<T>::new(trainer()?, speed.captured.is_some());
        speed.twice = Some(stepper.seconds(&mut load(2 * batch_size)?, warm_up + 1, steps)?);
    }

    let task = T::NAME;
    let mixed = run::mixed_precision(&config.runtime)?.map(|mixed| mixed.policy.dtype().to_string());
    Report { task, placement, mixed, batch_size, parameters, profile, recorded, speed }.write(arguments)
}

fn trainer<T: Task>(
    arguments: &Arguments,
    config: &TaskConfig<T>,
    training: &T::Data,
    placement: &Placement,
) -> Result<Trainer<T::Model>> {
    let model = task::model_of::<T>(arguments.checkpoint.as_deref(), config, training, placement)?;
    trainer_of::<T>(model, config, run::mixed_precision(&config.runtime)?.as_ref())
}

/// The batches of training.
fn loader<T: Task>(
    data: &Arc<T::Data>,
    config: &TaskConfig<T>,
    batch_size: usize,
    placement: &Placement,
) -> Result<impl Iterator<Item = gradewise_nn::Result<Batch<T>>> + use<T>> {
    let order = BatchOrder::sequential(data.len(), batch_size)?.shuffled(config.train.seed).drop_last()?;
    Ok(batches(Arc::clone(data), &order, 0, &run::loading(placement))?)
}

/// The measured peak rates of the device in the arithmetic of the run.
fn ceilings(placement: &Placement) -> Result<Ceilings> {
    match &placement.device {
        Device::Cpu => host_ceilings(&[placement.dtype]).map_err(failed),
        Device::Cuda(cuda) => {
            let vendor = Vendor::open(cuda).ok();
            let mut arithmetics = vec![(placement.dtype, Compute::current())];
            // The dtype of products in mixed precision.
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
