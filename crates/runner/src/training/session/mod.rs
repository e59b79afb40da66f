//! A running training session.

mod finish;
mod losses;
mod saving;
mod stopped;

use super::steps::Steps;
use crate::{
    config::BudgetOf,
    error::{Error, Result},
    output,
    page::{About, Pace},
    run::{Energy, Interrupt, Memory, Progress, RunFolder, Sampler, Team},
    task::{Batch, Measures, Task, TaskConfig, number},
};
use gradewise_autograd::stoppable;
use gradewise_ffi::nvtx;
use gradewise_kernels::{
    Device,
    memory::{LeakWatcher, census},
};
use gradewise_nn::{
    Placement,
    optim::GradientWatch,
    train::{MetricsLog, Part, StepReport, Trainer},
};
pub use losses::Losses;
use serde_json::json;
use std::{collections::BTreeMap, time::Instant};

/// The reason why the steps ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    OutOfTime,
    Interrupted,
    /// The valid measure has not improved for `train.patience` evaluations.
    Stalled,
}

/// The time since the valid measure last improved.
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

/// Steps after which memory usage should be constant.
const SETTLED: u64 = 3;

/// Whether an action that is due every `every` steps, and at the end, is due now.
fn is_due(every: u64, step: u64, steps: u64) -> bool {
    step == steps || (every > 0 && step.is_multiple_of(every))
}

/// The steps of a process other than the leading one, which evaluates and writes.
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
    while trainer.steps() < train.trainer.steps {
        let Some(share) = team.proceeds(false, 0.0)? else { break };
        trainer.set_progress(share);
        let step = steps.take(&mut trainer, batches)?.step;
        if is_due(train.checkpoint_every, step, train.trainer.steps) {
            team.compare(&trainer)?;
        }
    }
    team.memory(memory)?;
    output::note(&format!("rank {} of {}: done after step {}", team.rank(), team.world(), trainer.steps()));
    Ok(())
}

/// A running training session.
pub struct Session<'a, T: Task> {
    trainer: Trainer<T::Model>,
    steps: Steps<T>,
    config: &'a TaskConfig<T>,
    placement: &'a Placement,
    folder: RunFolder,
    about: About,
    metrics: MetricsLog,
    memory: Memory,
    team: &'a Team,
    energy: Energy,
    sampler: Sampler,
    page: Pace,
    /// Smallest valid error so far, if the best weights are kept.
    best: f64,
    stall: Stall,
    /// The losses since the last record.
    losses: Losses,
    /// The learning rate of the last step.
    lr: f64,
    /// Whether a checkpoint was due during a streak of skipped steps.
    owed: bool,
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
        (folder, about): (RunFolder, About),
        losses: Losses,
        (memory, energy): (Memory, Energy),
        team: &'a Team,
    ) -> Result<Self> {
        // An undisturbed run measures the test split at its end alone.
        let ended = format!("test_{}", T::DECIDES);
        let metrics = MetricsLog::resume_without(folder.metrics(), trainer.steps(), &ended)?;
        if trainer.steps() == 0 {
            // Of an earlier attempt that ended before its first checkpoint; usually there is none.
            let _ = std::fs::remove_file(folder.best());
        }
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
        let lr = records.iter().filter_map(|record| record["lr"].as_f64()).next_back().unwrap_or_default();
        let steps = Steps::new(config, memory.device(), &mut trainer)?;
        let leaks = LeakWatcher::new(memory.device());
        let start = Instant::now();
        Ok(Self {
            trainer,
            steps,
            config,
            placement,
            folder,
            about,
            metrics,
            memory,
            team,
            energy,
            sampler: Sampler::start(&placement.device),
            page: Pace::new(),
            best,
            stall,
            losses,
            lr,
            owed: false,
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

    /// The share of the time budget that is spent; 0 without one.
    fn spent(&self) -> f64 {
        let train = &self.config.train;
        let seconds = match train.budget_of {
            BudgetOf::Run => self.seconds(),
            BudgetOf::Process => self.start.elapsed().as_secs_f64(),
        };
        if train.time_budget > 0.0 { (seconds / train.time_budget).min(1.0) } else { 0.0 }
    }

    /// Takes the remaining steps.
    ///
    /// # Errors
    /// From the steps and from writing, with advice on resuming.
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
        let first = self.trainer.steps();
        if self.losses.unmeasured && !self.measures_valid(valid, interrupt, self.losses.mean(), &progress)? {
            return Ok(End::Interrupted);
        }
        let mut begun = false;
        while self.trainer.steps() < train.trainer.steps {
            let end = match () {
                // Together, every process has begun a step when the first one is announced.
                () if !begun && self.team.world() > 1 => None,
                () if interrupt.requested() => Some(End::Interrupted),
                () if !begun => None,
                () if train.patience > 0 && self.stall.evaluations >= train.patience => Some(End::Stalled),
                () if self.spent() >= 1.0 => Some(End::OutOfTime),
                () => None,
            };
            let share = match train.budget_of {
                BudgetOf::Run => self.spent(),
                BudgetOf::Process => 0.0,
            };
            let Some(share) = self.team.proceeds(end.is_some(), share).map_err(|error| self.lost(&error))?
            else {
                self.checkpoint_at_end()?;
                return Ok(end.unwrap_or(End::Interrupted));
            };
            self.trainer.set_progress(share);
            begun = true;
            let report = match self.step(batches, interrupt) {
                Ok(report) => report,
                // Nothing has changed since the step before.
                Err(error) if error.is_stopped() => {
                    self.checkpoint_at_end()?;
                    return Ok(End::Interrupted);
                }
                // After a failed exchange, the state on the device is unreliable, so no checkpoint is written.
                Err(error @ gradewise_nn::Error::Exchange { .. }) => return Err(self.lost(&error)),
                Err(error) => return Err(error.into()),
            };
            let step = report.step;
            self.watch_gradients(&report, &progress);
            self.losses.see(report.loss);
            self.lr = report.lr;
            progress.step(|| format!("loss {}", number(report.loss)));
            if due(train.log_every, step) {
                self.record(&report)?;
                // The first steps make persistent allocations: the optimiser's state, and on a GPU the captured step.
                if step > first + SETTLED {
                    self.watch_memory(&progress)?;
                }
            }
            if due(train.eval_every, step) {
                self.losses.unmeasured = true;
            }
            let recent = self.losses.mean();
            if due(train.log_every, step) {
                self.losses.clear();
            }
            if self.losses.unmeasured && !self.measures_valid(valid, interrupt, recent, &progress)? {
                return Ok(End::Interrupted);
            }
            if due(train.checkpoint_every, step) {
                self.team.compare(&self.trainer).map_err(|error| self.lost(&error))?;
                self.owed = true;
            }
            if self.owed {
                self.checkpoint_between_steps()?;
            }
        }
        Ok(End::Done)
    }

    /// Measures the weights on the valid split. Returns `false` if a request to stop ended that early: the checkpoint then says that it is
    /// still to be done.
    fn measures_valid(
        &mut self,
        valid: &T::Data,
        interrupt: &Interrupt,
        recent: f64,
        progress: &Progress,
    ) -> Result<bool> {
        let measured = match self.team.world() {
            1 => stoppable(interrupt.flag(), || self.validate(valid)),
            _ => self.validate(valid),
        };
        let measures = match measured {
            Err(Error::Nn(error)) if error.is_stopped() => {
                self.checkpoint_at_end()?;
                return Ok(false);
            }
            other => other?,
        };
        self.losses.unmeasured = false;
        let (step, train) = (self.trainer.steps(), &self.config.train.trainer);
        progress.line(&format!(
            "step {step:>6}/{}  train {}  valid {}  lr {:.1e}  {:.0} s",
            train.steps,
            number(recent),
            number(measures.first().value),
            self.lr,
            self.seconds()
        ));
        self.page.refresh(self.folder.path());
        Ok(true)
    }

    /// Takes a step. A request to stop ends it early, with an error; in a step together with other processes, which would wait for this
    /// one, it does not.
    fn step(
        &mut self,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Part<Batch<T>>>>,
        interrupt: &Interrupt,
    ) -> gradewise_nn::Result<StepReport> {
        match self.team.world() {
            1 => stoppable(interrupt.flag(), || self.steps.take(&mut self.trainer, batches)),
            _ => self.steps.take(&mut self.trainer, batches),
        }
    }

    /// Warns once about a layer whose gradient norm is far from its recent median, before numbers stop being finite.
    fn watch_gradients(&mut self, report: &StepReport, progress: &Progress) {
        let norms = self.trainer.parameter_names().zip(report.norms.each.iter().copied());
        if let Some(excursion) = self.gradients.see(report.step, norms) {
            progress.line(&format!("warning: {excursion}"));
        }
    }

    /// A line with the number of such steps, if there were more than the reported one.
    fn gradient_count(&self) -> String {
        const FACTOR: f64 = GradientWatch::FACTOR;
        match self.gradients.steps() {
            0 | 1 => String::new(),
            steps => format!(
                "gradients   of a layer beyond {FACTOR} times their median, or below 1/{FACTOR} of it, in {steps} steps\n"
            ),
        }
    }

    /// If memory grows, reports which arrays do.
    fn watch_memory(&mut self, progress: &Progress) -> Result<()> {
        // Host memory is counted for all concurrent runs together, so the growth may belong to another run.
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

    /// Measures the weights on the valid split, and saves them if they are the best so far and the settings require it.
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

    fn record(&mut self, report: &StepReport) -> Result<()> {
        let gradients: BTreeMap<&str, f64> =
            self.trainer.parameter_names().zip(report.norms.each.iter().copied()).collect();
        let record = json!({
            "step": report.step,
            "train_loss": self.losses.mean(),
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
}
