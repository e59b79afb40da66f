//! A run under way.

use super::Outcome;
use crate::{
    error::{Error, Result},
    output, plots,
    run::{Energy, Interrupt, Memory, Progress, RunFolder, Sampler, Team},
    task::{self, Batch, Measures, Task, TaskConfig, number},
};
use gradewise_autograd::{Tensor, backend::is_anything_chosen, detect_anomalies, trace};
use gradewise_ffi::nvtx;
use gradewise_kernels::{
    Device, debug,
    memory::{LeakWatcher, census},
};
use gradewise_nn::{
    Placement,
    checkpoint::Checkpoint,
    optim::GradientWatch,
    train::{Batch as _, Capture, MetricsLog, Part, Samples, StepReport, Trainer},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    marker::PhantomData,
    time::{Duration, Instant},
};

/// Why the steps ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    OutOfTime,
    Interrupted,
    /// The valid split has not got better for `train.patience` evaluations.
    Stalled,
}

/// How long the valid split has not got better.
struct Stall {
    best: f64,
    /// Evaluations since the best one.
    evaluations: u64,
}

impl Default for Stall {
    fn default() -> Self {
        Self { best: f64::INFINITY, evaluations: 0 }
    }
}

impl Stall {
    fn see(&mut self, error: f64) {
        if error < self.best {
            *self = Self { best: error, evaluations: 0 };
        } else {
            self.evaluations += 1;
        }
    }
}

/// How steps are taken.
pub struct Steps<T: Task> {
    place: Device,
    /// Every result is looked at.
    watched: bool,
    /// A step that gave no finite numbers is looked at once more.
    again: bool,
    /// Batches of a step.
    accumulation: usize,
    task: PhantomData<T>,
}

impl<T: Task> Steps<T> {
    /// Prepares a trainer for the steps that the settings ask for.
    ///
    /// # Errors
    /// A choice of implementations that there are not.
    pub fn new(config: &TaskConfig<T>, device: &Device, trainer: &mut Trainer<T::Model>) -> Result<Self> {
        let watched = debug::is_on();
        // What waits for the host, or may, cannot be captured; nor does a graph log its operations.
        let chosen = is_anything_chosen().map_err(gradewise_nn::Error::from)?;
        let eager = watched || chosen || trace::is_on();
        trainer.set_capture(if config.train.capture && !eager { Capture::Required } else { Capture::Off });
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

    /// A step, and, if it was left out because it gave no finite numbers, the same work again with every result looked at: the weights
    /// are those it began with. Looking at every result of every step would take several times as long.
    fn step_and_look(
        &mut self,
        trainer: &mut Trainer<T::Model>,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
    ) -> gradewise_nn::Result<StepReport> {
        let given = batches.by_ref().take(self.accumulation).collect::<gradewise_nn::Result<Vec<_>>>()?;
        // Where they are already: cheap.
        let report = self.step(trainer, &mut given.iter().map(|part| part.to_device(&Device::Cpu)))?;
        if report.skipped {
            detect_anomalies(|| {
                trainer.look(given.iter().map(|part| part.to_device(&self.place)), Self::loss)
            })?;
        }
        Ok(report)
    }
}

/// Steps after which memory should stay what it is.
const SETTLED: u64 = 3;

/// Whether something that is done every so many steps, and at the end, is due.
fn is_due(every: u64, step: u64, steps: u64) -> bool {
    step == steps || (every > 0 && step.is_multiple_of(every))
}

/// The steps of a process that only helps: another one leads, measures and writes.
///
/// # Errors
/// From the steps; a process that is gone.
pub fn follow<T: Task>(
    mut trainer: Trainer<T::Model>,
    config: &TaskConfig<T>,
    memory: &Memory,
    batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
    team: &Team,
) -> Result<()> {
    let mut steps = Steps::<T>::new(config, memory.device(), &mut trainer)?;
    let train = &config.train;
    while trainer.steps() < train.trainer.steps && team.proceeds(false)? {
        let step = steps.take(&mut trainer, batches)?.step;
        if is_due(train.checkpoint_every, step, train.trainer.steps) {
            team.compare(&trainer)?;
        }
    }
    team.memory(memory)?;
    output::note(&format!("rank {} of {}: done after step {}", team.rank(), team.world(), trainer.steps()));
    Ok(())
}

/// A run under way.
pub struct Session<'a, T: Task> {
    trainer: Trainer<T::Model>,
    steps: Steps<T>,
    config: &'a TaskConfig<T>,
    placement: &'a Placement,
    folder: RunFolder,
    metrics: MetricsLog,
    memory: Memory,
    team: &'a Team,
    energy: Energy,
    sampler: Sampler,
    /// Smallest valid error so far, if the best weights are kept.
    best: f64,
    stall: Stall,
    leaks: LeakWatcher,
    gradients: GradientWatch,
    /// Seconds of training before this session.
    earlier: f64,
    start: Instant,
}

impl<'a, T: Task> Session<'a, T> {
    pub fn open(
        mut trainer: Trainer<T::Model>,
        config: &'a TaskConfig<T>,
        placement: &'a Placement,
        folder: RunFolder,
        (memory, energy): (Memory, Energy),
        team: &'a Team,
    ) -> Result<Self> {
        let metrics = MetricsLog::resume(folder.metrics(), trainer.steps())?;
        let records = MetricsLog::read(folder.metrics())?;
        let earlier = records.iter().filter_map(|record| record["seconds"].as_f64()).fold(0.0, f64::max);
        let best = if folder.best().exists() {
            records.iter().filter_map(|record| record["best_valid"].as_f64()).fold(f64::INFINITY, f64::min)
        } else {
            f64::INFINITY
        };
        let decides = format!("valid_{}", T::DECIDES);
        let mut stall = Stall::default();
        records.iter().filter_map(|record| record[&decides].as_f64()).for_each(|error| stall.see(error));
        let steps = Steps::new(config, memory.device(), &mut trainer)?;
        let leaks = LeakWatcher::new(memory.device());
        let start = Instant::now();
        Ok(Self {
            trainer,
            steps,
            config,
            placement,
            folder,
            metrics,
            memory,
            team,
            energy,
            sampler: Sampler::start(&placement.device),
            best,
            stall,
            leaks,
            gradients: GradientWatch::default(),
            earlier,
            start,
        })
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.trainer.steps()
    }

    fn seconds(&self) -> f64 {
        self.earlier + self.start.elapsed().as_secs_f64()
    }

    /// Takes the remaining steps.
    ///
    /// # Errors
    /// From the steps and from writing, with what is kept and how to go on.
    pub fn fit(
        &mut self,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
        valid: &T::Data,
        interrupt: &Interrupt,
    ) -> Result<End> {
        self.take_all(batches, valid, interrupt).map_err(|error| self.stopped(error))
    }

    fn take_all(
        &mut self,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
        valid: &T::Data,
        interrupt: &Interrupt,
    ) -> Result<End> {
        let train = &self.config.train;
        let progress = Progress::new(train.trainer.steps, self.trainer.steps());
        let due = |every: u64, step: u64| is_due(every, step, train.trainer.steps);
        let budget = (train.time_budget > 0.0)
            .then(|| Duration::try_from_secs_f64(train.time_budget).unwrap_or(Duration::MAX));
        let first = self.trainer.steps();
        let mut losses = Vec::new();
        let mut begun = false;
        while self.trainer.steps() < train.trainer.steps {
            let end = match () {
                () if !begun => None,
                () if interrupt.requested() => Some(End::Interrupted),
                () if train.patience > 0 && self.stall.evaluations >= train.patience => Some(End::Stalled),
                () if budget.is_some_and(|budget| self.start.elapsed() >= budget) => Some(End::OutOfTime),
                () => None,
            };
            if !self.team.proceeds(end.is_some()).map_err(|error| self.lost(&error))? {
                self.checkpoint()?;
                return Ok(end.unwrap_or(End::Interrupted));
            }
            begun = true;
            let report = match self.steps.take(&mut self.trainer, batches) {
                Ok(report) => report,
                // What a step that broke off between processes left on a device is not to be trusted.
                Err(error @ gradewise_nn::Error::Exchange { .. }) => return Err(self.lost(&error)),
                Err(error) => return Err(error.into()),
            };
            let step = report.step;
            self.watch_gradients(&report, &progress);
            losses.extend(Some(report.loss).filter(|loss| loss.is_finite()));
            progress.step(|| format!("loss {}", number(report.loss)));
            if due(train.log_every, step) {
                self.record(&report, &losses)?;
                // The first steps make what stays: the optimiser's state, and on a GPU the captured step.
                if step > first + SETTLED {
                    self.watch_memory(&progress)?;
                }
            }
            if due(train.eval_every, step) {
                let measures = self.validate(valid)?;
                let recent = losses.iter().sum::<f64>() / losses.len() as f64;
                progress.line(&format!(
                    "step {step:>6}/{}  train {}  valid {}  lr {:.1e}  {:.0} s",
                    train.trainer.steps,
                    number(recent),
                    number(measures.first().value),
                    report.lr,
                    self.seconds()
                ));
            }
            if due(train.log_every, step) {
                losses.clear();
            }
            if due(train.checkpoint_every, step) {
                self.team.compare(&self.trainer).map_err(|error| self.lost(&error))?;
                self.checkpoint()?;
            }
        }
        Ok(End::Done)
    }

    /// Warns once, before the numbers stop being finite, of a layer whose gradients leave their past.
    fn watch_gradients(&mut self, report: &StepReport, progress: &Progress) {
        let norms = self.trainer.parameter_names().zip(report.norms.each.iter().copied());
        if let Some(excursion) = self.gradients.see(report.step, norms) {
            progress.line(&format!("warning: {excursion}"));
        }
    }

    /// A line about the steps with such gradients, if there were more than the one that was told.
    fn gradient_count(&self) -> String {
        const FACTOR: f64 = GradientWatch::FACTOR;
        match self.gradients.steps() {
            0 | 1 => String::new(),
            steps => format!(
                "gradients   of a layer beyond {FACTOR} times their median, or below 1/{FACTOR} of it, in {steps} steps\n"
            ),
        }
    }

    /// Says what grows, if memory does.
    fn watch_memory(&mut self, progress: &Progress) -> Result<()> {
        // The host counts for all runs at once: what grows may be another's.
        if output::is_named() && self.placement.device == Device::Cpu {
            return Ok(());
        }
        if census::is_on() {
            self.trainer.name_arrays();
        }
        let step = self.trainer.steps();
        if let Some(leak) = self.leaks.see(step)? {
            progress.line(&format!("warning: {leak}"));
            self.metrics
                .write(&json!({"step": step, "seconds": self.seconds(), "memory_growth": leak.slope}))?;
        }
        Ok(())
    }

    /// Keeps what a run that breaks off has reached, and says how to go on. The first error is the one to report, so that those on
    /// the way out are not.
    fn stopped(&self, error: Error) -> Error {
        use gradewise_autograd::Error as Autograd;
        let Error::Nn(source) = error else { return error };
        let step = self.trainer.steps();
        let mut next = self.gradient_count();
        // Weights that give no finite numbers are to be looked at, not to go on from.
        if matches!(
            &*source,
            gradewise_nn::Error::Diverged { .. } | gradewise_nn::Error::Autograd(Autograd::Anomaly(_))
        ) {
            if self.weights().and_then(|weights| Ok(weights.write(self.folder.failed())?)).is_ok() {
                next += &format!("the weights after step {step} are in {}\n", self.folder.failed().display());
            }
        } else {
            let _ = self.checkpoint();
        }
        let resume =
            format!("{} train {} --resume {}", output::program(), T::NAME, self.folder.path().display());
        let kept = Checkpoint::read(self.folder.checkpoint()).ok().map(|kept| kept.metadata.step);
        next += &match (&*source, kept) {
            (gradewise_nn::Error::Diverged { skipped, .. }, kept) => {
                let anomaly = "runtime.detect_anomaly=true";
                let again = match kept {
                    // No weight has changed since the first of the skipped steps.
                    Some(kept) if kept + skipped >= step => {
                        format!("the checkpoint of step {kept} holds the same weights: start again")
                    }
                    Some(kept) => {
                        let lr = self.config.train.trainer.lr / 10.0;
                        format!("go on after step {kept} with: {resume} train.lr={lr:e} {anomaly}")
                    }
                    None => "there is no checkpoint yet to go on from: start again".to_owned(),
                };
                format!("{again}\n{anomaly} names the operation that first gives no finite number")
            }
            (source, Some(kept)) => {
                // As it was, the run would fail again.
                let flag = if source.is_out_of_memory() { " --fit-memory" } else { "" };
                format!("go on after step {kept} with: {resume}{flag}")
            }
            (_, None) => "there is no checkpoint yet to go on from".to_owned(),
        };
        Error::Stopped { source: Box::new(Error::Nn(source)), next }
    }

    /// What to do about a process that is gone.
    fn lost(&self, error: &dyn std::fmt::Display) -> Error {
        let (folder, name) = (self.folder.path().display(), T::NAME);
        let next = match Checkpoint::read(self.folder.checkpoint()) {
            Ok(Checkpoint { metadata, .. }) => format!(
                "go on after step {} with: {} train {name} --resume {folder}, on any number of devices",
                metadata.step,
                output::program()
            ),
            Err(_) => "there is no checkpoint yet to go on from".to_owned(),
        };
        Error::Failed(format!("after step {}: {error}; {next}", self.trainer.steps()))
    }

    /// Measures the weights on the valid split, and keeps them if they are the best so far and that is wanted.
    fn validate(&mut self, valid: &T::Data) -> Result<Measures> {
        let _range = nvtx::range("evaluate");
        let measures = self.trainer.evaluate(|model| T::measure(&[model], valid, self.placement))?;
        let error = measures.first().value;
        self.stall.see(error);
        let mut record = measures.json("valid_");
        record.insert("step".to_owned(), self.trainer.steps().into());
        record.insert("seconds".to_owned(), self.seconds().into());
        if self.config.train.keeps_best() && error < self.best {
            self.best = error;
            self.weights()?.write(self.folder.best())?;
            record.insert("best_valid".to_owned(), error.into());
        }
        self.metrics.write(&record)?;
        Ok(measures)
    }

    fn record(&mut self, report: &StepReport, losses: &[f64]) -> Result<()> {
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        let gradients: BTreeMap<&str, f64> =
            self.trainer.parameter_names().zip(report.norms.each.iter().copied()).collect();
        let record = json!({
            "step": report.step,
            "train_loss": mean,
            "lr": report.lr,
            "gradient_norm": report.norms.total,
            "clipped": report.clipped,
            "skipped_steps": self.trainer.skipped_steps(),
            "zero_gradients": report.zeros,
            "loss_scale": report.scale,
            "seconds": self.seconds(),
            "gradient_norms": gradients,
            "utilization": self.sampler.take(),
        });
        Ok(self.metrics.write(&record)?)
    }

    fn weights(&self) -> Result<Checkpoint> {
        let sizes = serde_json::to_value(&self.config.model).unwrap_or(Value::Null);
        Ok(self.trainer.checkpoint(T::NAME, sizes)?)
    }

    fn checkpoint(&self) -> Result<()> {
        let _range = nvtx::range("checkpoint");
        Ok(self.weights()?.write(self.folder.checkpoint())?)
    }

    /// Draws the figures and reports on the test split.
    pub fn finish(mut self, end: End, test: &T::Data) -> Result<Outcome> {
        let (folder, steps) = (self.folder.path().display().to_string(), self.trainer.steps());
        let (seconds, joules) = (self.seconds(), self.energy.joules());
        let utilization = self.sampler.total();
        let memory = self.team.memory(&self.memory)?;
        let records = MetricsLog::read(self.folder.metrics())?;
        let title = format!("{}: loss and learning rate", T::TITLE);
        plots::loss(&self.folder.loss(), &history::<T>(&records), &title, T::LOSS)?;
        if end == End::Interrupted {
            return Err(Error::Interrupted(format!(
                "interrupted after step {steps}; go on with: {} train {} --resume {folder}",
                output::program(),
                T::NAME
            )));
        }
        let best = self.folder.kept_best(&self.config.train);
        let kept = best.is_some();
        if let Some(best) = best {
            task::load_weights(self.trainer.model(), &Checkpoint::read(best)?.tensors, self.placement)?;
        }
        let (placement, config) = (self.placement, self.config);
        let measure = |model: &T::Model| -> gradewise_nn::Result<_> {
            let asymmetry = task::asymmetry::<T>(model, test, placement)?;
            let measures = T::measure(&[model], test, placement)?;
            // There is nothing to draw of weights that have diverged, and motions under them are no data.
            let figures = match measures.are_finite() {
                true => T::figures(model, config, placement, &self.folder),
                false => Ok(Vec::new()),
            };
            Ok((measures, asymmetry, figures))
        };
        // The kept weights are those of the average already, if one is taken.
        let (measures, asymmetry, figures) =
            if kept { measure(self.trainer.model()) } else { self.trainer.evaluate(measure) }?;
        let figures = figures?;
        let mut record = measures.json("test_");
        for (key, value) in [
            ("step", json!(steps)),
            ("asymmetry", json!(asymmetry)),
            ("seconds", json!(seconds)),
            ("joules", json!(joules)),
            ("utilization", json!(utilization)),
            ("memory", json!(memory[0].usage)),
            ("devices", json!(memory)),
        ] {
            record.insert(key.to_owned(), value);
        }
        self.metrics.write(&record)?;

        let first = measures.first();
        let mut text = format!(
            "\ntest {} {} on {} samples after {steps} steps, {seconds:.0} s of training\n",
            first.label,
            number(first.value),
            test.len(),
        );
        for other in measures.others() {
            text += &format!("test {} {}\n", other.label, number(other.value));
        }
        text += "\n";
        let comparison = T::comparison(&measures, config);
        if measures.are_finite() && !comparison.is_empty() {
            text += &format!("{comparison}\n");
        }
        text += &self.gradient_count();
        text += &task::symmetry_line::<T>("symmetry   ", asymmetry);
        for member in &memory {
            let rank = if memory.len() > 1 { format!(" (rank {})", member.rank) } else { String::new() };
            text += &format!("memory      {} on {}{rank}\n", member.usage, member.device);
        }
        if let Some(joules) = joules {
            text += &format!("energy      {:.1} kJ of the device\n", joules / 1e3);
        }
        if let Some(busy) = utilization {
            text += &format!(
                "utilisation {:.0}% of the time a kernel ran, {:.0}% memory was busy\n",
                busy.gpu, busy.memory
            );
        }
        let kept = if self.config.train.keeps_best() { " best.safetensors" } else { "" };
        text += &format!(
            "run folder  {folder}\n            config.toml metrics.jsonl checkpoint.safetensors{kept} loss.svg {}\n",
            figures.join(" ")
        );
        if end == End::Stalled {
            text += &format!(
                "stopped early: {} evaluations without a valid {} below {}; go on with  {} train {} --resume {folder} \
                 train.patience=0\n",
                self.stall.evaluations,
                first.label,
                number(self.stall.best),
                output::program(),
                T::NAME
            );
        }
        if end == End::OutOfTime {
            text += &format!(
                "out of time; go on with  {} train {} --resume {folder}\n",
                output::program(),
                T::NAME
            );
        }
        if let Some(full) = T::PRESETS.get(1) {
            text += &format!("full run    {} train {} --preset {}\n", output::program(), T::NAME, full.name);
        }
        output::print(&text)?;
        let skipped = self.trainer.skipped_steps();
        Ok(Outcome { test: measures, asymmetry, steps, skipped, seconds, joules })
    }
}

/// The curves in the records of a run.
fn history<T: Task>(records: &[Value]) -> plots::LossHistory {
    let series = |key: &str| -> Vec<(u64, f64)> {
        records.iter().filter_map(|record| Some((record["step"].as_u64()?, record[key].as_f64()?))).collect()
    };
    plots::LossHistory {
        train: series("train_loss"),
        valid: series(&format!("valid_{}", T::DECIDES)),
        lr: series("lr"),
    }
}
