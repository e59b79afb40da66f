//! `profile`: where the time of a training step goes.

use super::train::trainer_of;
use crate::{
    cli::Profile as Arguments,
    error::{Error, Result},
    output, run,
    tasks::{self, Batch, Task, TaskConfig, with_task},
};
use gradewise_autograd::{Tensor, observe::observe};
use gradewise_bench::{
    Ceilings,
    gpu::{self, Timer, Vendor},
    profile::{Clock, Grouping, NamedTime, Profile, Recorder, Recording, Timers, host_ceilings, trace},
};
use gradewise_ffi::DeviceMemory;
use gradewise_kernels::{Compute, DType, Device};
use gradewise_nn::{
    Module, Placement,
    checkpoint::{Checkpoint, replace_file},
    data::{Split, loader::BatchOrder},
    train::{CapturedStep, Samples, StepReport, Trainer, batches},
};
use serde_json::json;
use std::{cell::RefCell, path::Path, sync::Arc, time::Instant};

pub fn run(arguments: &Arguments) -> Result<()> {
    with_task!(&arguments.task, T => profile::<T>(arguments))
}

/// Batches as the loader brings them.
type Batches<'a, T> = &'a mut dyn Iterator<Item = gradewise_nn::Result<Batch<T>>>;

/// Takes steps as training does, and times them.
struct Stepper<T: Task> {
    trainer: Trainer<T::Model>,
    captured: Option<CapturedStep<Batch<T>>>,
}

impl<T: Task> Stepper<T> {
    /// Steps whose operators are called one by one, or replayed as a graph.
    fn new(trainer: Trainer<T::Model>, device: &Device, capture: bool) -> Self {
        let captured = match device {
            Device::Cpu => None,
            Device::Cuda(cuda) => Some(CapturedStep::new(cuda, capture)),
        };
        Self { trainer, captured }
    }

    fn step(
        &mut self,
        batches: Batches<'_, T>,
        loss: impl Fn(&T::Model, &Batch<T>) -> gradewise_nn::Result<Tensor>,
    ) -> gradewise_nn::Result<StepReport> {
        match &mut self.captured {
            Some(captured) => captured.step(&mut self.trainer, &mut &mut *batches, loss),
            None => self.trainer.step(&mut &mut *batches, loss),
        }
    }

    /// The median seconds of `count` steps after `warm_up` others.
    fn seconds(&mut self, batches: Batches<'_, T>, warm_up: usize, count: usize) -> Result<f64> {
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

fn profile<T: Task>(arguments: &Arguments) -> Result<()> {
    let mut resolver = tasks::resolver::<T>(arguments.preset.as_deref())?;
    let config = TaskConfig::<T>::resolve(arguments.settings.apply(&mut resolver)?)?;
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

    if let Some(path) = &arguments.trace {
        write_trace(path, &recorded.recordings, &placement.device)?;
    }
    if arguments.json {
        let record = json!({
            "task": T::NAME,
            "device": device_name(&placement.device),
            "dtype": placement.dtype.to_string(),
            "batch_size": batch_size,
            "parameters": parameters,
            "profile": profile,
            "parts": recorded.parts,
            "eager_seconds": speed.eager,
            "captured_seconds": speed.captured,
            "captured_nodes": speed.kernels,
            "twice_the_batch_seconds": speed.twice,
            "advice": speed.advice(batch_size, &recorded.parts),
        });
        return output::print(&format!("{record:#}\n"));
    }
    let mut text = format!(
        "{}, {parameters} parameters, {} on {}, batches of {batch_size}; {}\n\n{}",
        T::NAME,
        placement.dtype,
        device_name(&placement.device),
        described(&profile.ceilings),
        profile.table(arguments.limit),
    );
    text += &format!("\n{:<33}{:>11}{:>7}{:>11}{:>11}\n", "part", "ms", "calls", "peak MiB", "kept MiB");
    for part in &recorded.parts {
        text += &format!("{part}\n");
    }
    text += "\n";
    for line in speed.advice(batch_size, &recorded.parts) {
        text += &format!("{line}\n");
    }
    if let Some(path) = &arguments.trace {
        text += &format!("trace in {}: open it at https://ui.perfetto.dev\n", path.display());
    }
    output::print(&text)
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

/// Steps as they were recorded.
struct Recorded {
    recordings: Vec<Recording>,
    /// Mean time of a step by the clock of the device.
    step_seconds: f64,
    parts: Vec<NamedTime>,
}

/// Takes steps and records every operation.
fn record<T: Task>(
    stepper: &mut Stepper<T>,
    batches: Batches<'_, T>,
    device: &Device,
    steps: usize,
    eager_seconds: f64,
) -> Result<Recorded> {
    let clock = Clock::new(device);
    let filler = Filler::new(device, eager_seconds)?;
    let (mut recordings, mut total) = (Vec::new(), 0.0);
    for _ in 0..steps {
        let begun = RefCell::new(None);
        let loss = |model: &T::Model, batch: &Batch<T>| {
            let mut begun = begun.borrow_mut();
            if begun.is_none() {
                filler.queue()?;
                *begun = Some(clock.mark()?);
            }
            T::loss(model, batch)
        };
        let (report, recorder) = observe(Recorder::new(&clock), || stepper.step(batches, loss));
        report?;
        let end = clock.mark()?;
        clock.wait().map_err(failed)?;
        if let Some(start) = begun.into_inner() {
            total += end.since(&start).map_err(failed)?;
        }
        recordings.push(recorder.finish());
    }
    // Parts apart from operations, and undisturbed by their marks.
    let timers = Timers::new(device);
    for _ in 0..steps {
        timers.time("step", || {
            let mut waited = std::iter::from_fn(|| timers.time("wait for a batch", || batches.next()));
            stepper.step(&mut waited, |model, batch| timers.time("forward", || T::loss(model, batch)))
        })?;
    }
    let parts = timers.report().map_err(failed)?;
    Ok(Recorded { recordings, step_seconds: total / steps as f64, parts })
}

/// Keeps a GPU busy while the host queues a step, so that the times of operations are the device's alone.
struct Filler(Option<(gradewise_kernels::CudaDevice, [DeviceMemory; 2], usize)>);

impl Filler {
    const BYTES: usize = 256 << 20;

    fn new(device: &Device, host_seconds: f64) -> Result<Self> {
        let Device::Cuda(cuda) = device else { return Ok(Self(None)) };
        let driver = |error: gradewise_ffi::Error| failed(error.into());
        let block = || DeviceMemory::new(cuda.stream(), Self::BYTES).map_err(driver);
        let blocks = [block()?, block()?];
        let times =
            Timer::new(cuda, 1, 3).times(|| Ok(blocks[1].copy_from(0, &blocks[0], 0, Self::BYTES)?));
        let one = times.map_err(failed)?.median() * 1e-3;
        // Marks, and what is copied from the host in between, make a step of the host several times as long.
        let count = (5.0 * host_seconds / one).ceil().clamp(1.0, 400.0) as usize;
        Ok(Self(Some((cuda.clone(), blocks, count))))
    }

    fn queue(&self) -> gradewise_nn::Result<()> {
        let Some((cuda, [from, to], count)) = &self.0 else { return Ok(()) };
        for _ in 0..*count {
            to.copy_from(0, from, 0, Self::BYTES).map_err(|source| gradewise_kernels::Error::Cuda {
                operation: "keep the device busy",
                device: cuda.ordinal(),
                source,
                launches: Default::default(),
            })?;
        }
        Ok(())
    }
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

fn device_name(device: &Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(cuda) => format!("{device} ({})", cuda.info().name),
    }
}

fn described(ceilings: &Ceilings) -> String {
    let copy = ceilings.copy_bytes_per_s.unwrap_or(0.0);
    let mut text = format!("roof: copies {:.1} GB/s", 1e-9 * copy);
    for (name, rate) in &ceilings.products {
        text += &format!(", products in {name} {:.1} GFLOP/s", 1e-9 * rate.best());
    }
    text
}

/// The times of a step in other ways.
struct Speed {
    /// Operator by operator, with all that the host does.
    eager: f64,
    /// What the device needs for it, if it never waits for the host.
    device: Option<f64>,
    /// Replayed as a graph.
    captured: Option<f64>,
    /// Kernels, copies and fills of the graph.
    kernels: Option<usize>,
    /// With twice the batch.
    twice: Option<f64>,
}

impl Speed {
    /// What the times say, and whether batching or capture would help.
    fn advice(&self, batch_size: usize, parts: &[NamedTime]) -> Vec<String> {
        let ms = |seconds: f64| 1e3 * seconds;
        let mut lines = Vec::new();
        if let Some(device) = self.device {
            // Marks take time, too: the device needs at most what a graph takes.
            let device = self.captured.map_or(device, |captured| device.min(captured)).min(self.eager);
            let waits = (self.eager - device).max(0.0);
            let mut line = format!(
                "launches: a step takes {:.3} ms operator by operator, of which the device computes {:.3} ms",
                ms(self.eager),
                ms(device)
            );
            if let Some(kernels) = self.kernels {
                line += &format!(
                    "; {kernels} launches, {:.1} µs of the host for each",
                    1e6 * self.eager / kernels as f64
                );
            }
            lines.push(line);
            lines.push(match self.captured {
                Some(captured) if captured < 0.9 * self.eager => format!(
                    "capture helps: {:.3} ms as a graph, {:.0}% less (train.capture=true, the default)",
                    ms(captured),
                    100.0 * (1.0 - captured / self.eager)
                ),
                Some(captured) => format!(
                    "capture changes little: {:.3} ms as a graph; the device is busy {:.0}% of the time anyway",
                    ms(captured),
                    100.0 * (1.0 - waits / self.eager)
                ),
                None => "the step was not captured; without a graph the device waits for the host".to_owned(),
            });
        }
        let one = self.captured.unwrap_or(self.eager);
        if let Some(twice) = self.twice {
            let gain = 2.0 * one / twice;
            lines.push(if gain > 1.15 {
                format!(
                    "larger batches help: {} samples take {:.3} ms, {:.2} times the samples per second of {batch_size}",
                    2 * batch_size,
                    ms(twice),
                    gain
                )
            } else {
                format!(
                    "larger batches do not help: {} samples take {:.3} ms, {gain:.2} times the samples per second of {batch_size}",
                    2 * batch_size,
                    ms(twice)
                )
            });
        }
        let mean = |name: &str| {
            let part = parts.iter().find(|part| part.name == name)?;
            Some(part.seconds / part.calls.max(1) as f64)
        };
        if let (Some(waited), Some(step)) = (mean("wait for a batch"), mean("step"))
            && waited > 0.1 * step
        {
            lines.push(format!(
                "the loader holds steps back: {:.3} ms of {:.3} are waited for a batch",
                ms(waited),
                ms(step)
            ));
        }
        lines
    }
}

fn write_trace(path: &Path, recordings: &[Recording], device: &Device) -> Result<()> {
    let trace = trace(recordings, &device_name(device)).map_err(failed)?.to_string();
    Ok(replace_file(path, |file| file.write_all(trace.as_bytes()))?)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(eager: f64, device: f64, captured: f64, twice: f64) -> Speed {
        Speed {
            eager,
            device: Some(device),
            captured: Some(captured),
            kernels: Some(100),
            twice: Some(twice),
        }
    }

    #[test]
    fn what_helps_is_said_and_what_does_not_too() {
        let text = speed(0.010, 0.002, 0.0025, 0.003).advice(50, &[]).join("\n");
        for part in [
            "100 launches, 100.0 µs",
            "capture helps: 2.500 ms as a graph, 75% less",
            "100 samples take 3.000 ms, 1.67",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        let text = speed(0.010, 0.0098, 0.0099, 0.0198).advice(50, &[]).join("\n");
        assert!(text.contains("capture changes little") && text.contains("do not help"), "{text}");
        let host = Speed { device: None, captured: None, kernels: None, twice: None, eager: 1.0 };
        let part = |name: &str, seconds| NamedTime {
            name: name.to_owned(),
            calls: 2,
            seconds,
            peak_bytes: 0,
            kept_bytes: 0,
        };
        let parts = [part("step", 2.0), part("wait for a batch", 0.6)];
        assert_eq!(
            host.advice(5, &parts),
            ["the loader holds steps back: 300.000 ms of 1000.000 are waited for a batch"]
        );
    }
}
