//! `train`: the whole of a run, from data to figures.

mod seeds;

use crate::{
    cli::{Train, TrainNBody, TrainTask},
    config::{NBody as Config, PAPER_OVERRIDES, Resolver, Train as TrainConfig},
    error::{Error, Result},
    nbody, output, plots,
    run::{self, Interrupt, Memory, Progress, RunFolder},
};
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Placement,
    checkpoint::Checkpoint,
    data::{
        Split,
        loader::BatchOrder,
        nbody::{NBodyData, Trajectories},
    },
    models::{NBody, NBodyConfig},
    optim::{Method, Schedule},
    train::{
        CapturedStep, MetricsLog, StepReport, Trainer, TrainerConfig,
        nbody::{Example, examples},
    },
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

pub fn run(arguments: &Train) -> Result<()> {
    match &arguments.task {
        TrainTask::Nbody(arguments) => train_nbody(arguments),
    }
}

fn train_nbody(arguments: &TrainNBody) -> Result<()> {
    let mut resolver = Resolver::new::<Config>()?;
    let resumed = arguments.resume.as_deref().map(RunFolder::open).transpose()?;
    if let Some(folder) = &resumed {
        resolver.file(&folder.config())?;
    }
    let config = Config::resolve(arguments.settings.apply(&mut resolver)?)?;
    let seeds = arguments.seeds.as_ref().map(|text| seeds::parse(text, config.train.seed)).transpose()?;
    let placement = run::placement(&config.runtime)?;
    let data = Splits::load(&config)?;
    let interrupt = Interrupt::listen();
    if let Some(seeds) = seeds {
        return train_seeds(&seeds, arguments.out.as_deref(), &config, &placement, &data, &interrupt);
    }
    let place = match resumed {
        Some(folder) => Place::Resumed(folder),
        None => Place::New(arguments.out.clone()),
    };
    let (end, session) = train_one(&config, &placement, &data, place, &interrupt)?;
    session.finish(end, &data.test)?;
    Ok(())
}

/// One run after the other, each as if it had been asked for alone with `--seed`.
fn train_seeds(
    seeds: &[u64],
    out: Option<&Path>,
    config: &Config,
    placement: &Placement,
    data: &Splits,
    interrupt: &Interrupt,
) -> Result<()> {
    let parent = RunFolder::create(out, nbody::NAME)?;
    let parent = parent.path();
    // Before the first run, not after it.
    if let Some(taken) = seeds.iter().map(|&seed| seeds::folder(parent, seed)).find(|folder| folder.exists())
    {
        return Err(Error::Usage(format!(
            "{} exists already; choose another folder by --out, or other seeds",
            taken.display()
        )));
    }
    let mut outcomes = Vec::new();
    for (position, &seed) in seeds.iter().enumerate() {
        output::note(&format!("\nseed {seed} ({} of {})", position + 1, seeds.len()));
        let mut config = config.clone();
        config.train.seed = seed;
        let place = Place::New(Some(seeds::folder(parent, seed)));
        let (end, session) = train_one(&config, placement, data, place, interrupt)?;
        outcomes.push((seed, session.finish(end, &data.test)?));
    }
    let (device, dtype) = (placement.device.to_string(), placement.dtype.to_string());
    seeds::Summary::new(device, dtype, &outcomes).report(parent)
}

/// The samples of a run.
struct Splits {
    train: Arc<NBodyData>,
    valid: NBodyData,
    test: Trajectories,
}

impl Splits {
    fn load(config: &Config) -> Result<Self> {
        let start = Instant::now();
        output::note(&format!("data: {}", config.data.source));
        let load = |split| nbody::trajectories(&config.data, split);
        let train = Arc::new(NBodyData::from_trajectories(&load(Split::Train)?)?);
        let valid = NBodyData::from_trajectories(&load(Split::Valid)?)?;
        let test = load(Split::Test)?;
        output::note(&format!(
            "data: {} train, {} valid, {} test samples in {:.1} s",
            train.len(),
            valid.len(),
            test.systems(),
            start.elapsed().as_secs_f64()
        ));
        Ok(Self { train, valid, test })
    }
}

/// Where a run keeps its files.
enum Place {
    /// The folder of an earlier run, which goes on.
    Resumed(RunFolder),
    /// This folder, or the first free one.
    New(Option<PathBuf>),
}

/// A run up to the end of its steps.
fn train_one<'a>(
    config: &'a Config,
    placement: &Placement,
    data: &Splits,
    place: Place,
    interrupt: &Interrupt,
) -> Result<(End, Session<'a>)> {
    let order = BatchOrder::sequential(data.train.len(), config.train.batch_size)?
        .shuffled(config.train.seed)
        .drop_last()?;
    let memory = Memory::start(&placement.device);
    let mut trainer = Trainer::new(nbody::new_model(config, placement)?, trainer_config(&config.train))?;
    output::note(&format!(
        "model: {} parameters, {} on {}",
        trainer.model().parameter_count(),
        placement.dtype,
        placement.device
    ));
    let folder = match place {
        Place::Resumed(folder) => {
            trainer.resume(&Checkpoint::read(folder.checkpoint())?)?;
            output::note(&format!("resumed: {} after step {}", folder.path().display(), trainer.steps()));
            folder
        }
        Place::New(out) => RunFolder::create(out.as_deref(), nbody::NAME)?,
    };
    folder.write_config(config)?;
    let first = trainer.steps() * config.train.accumulation as u64;
    // On a GPU the steps themselves put the batches where the captured work reads them.
    let loading = match &placement.device {
        Device::Cpu => placement.clone(),
        Device::Cuda(_) => Placement::new(&Device::Cpu, placement.dtype),
    };
    let mut batches = examples(Arc::clone(&data.train), &order, first, &loading)?;
    let mut session = Session::open(trainer, config, folder, memory)?;
    let end = session.fit(&mut batches, &data.valid, interrupt)?;
    Ok((end, session))
}

fn trainer_config(train: &TrainConfig) -> TrainerConfig {
    let TrainConfig { lr, final_lr, warmup_steps: warmup, decay_steps: decay, steps: total, .. } = *train;
    let schedule = match train.schedule.as_str() {
        "linear" => Schedule::Linear { lr, final_lr, warmup, decay, total },
        "step" => Schedule::Step { lr, every: decay.max(1), factor: 0.1 },
        "constant" => Schedule::Constant { lr, warmup },
        _ => Schedule::Cosine { lr, final_lr, warmup, decay, total },
    };
    let method = match train.optimizer.as_str() {
        "adamw" => Method::adamw(train.weight_decay),
        "sgd" => Method::Sgd { momentum: train.momentum, weight_decay: train.weight_decay },
        _ => Method::adam(train.weight_decay),
    };
    TrainerConfig {
        method,
        schedule,
        accumulation: train.accumulation,
        clip_norm: (train.clip_norm > 0.0).then_some(train.clip_norm),
        ema: (train.ema > 0.0).then_some(train.ema),
    }
}

/// Why the steps ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    OutOfTime,
    Interrupted,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    test_mse: f64,
    steps: u64,
    seconds: f64,
}

/// A run under way.
struct Session<'a> {
    trainer: Trainer<NBody>,
    /// How steps are taken on a GPU.
    device: Option<CapturedStep<Example>>,
    config: &'a Config,
    folder: RunFolder,
    metrics: MetricsLog,
    memory: Memory,
    /// Seconds of training before this session.
    earlier: f64,
    start: Instant,
}

impl<'a> Session<'a> {
    fn open(trainer: Trainer<NBody>, config: &'a Config, folder: RunFolder, memory: Memory) -> Result<Self> {
        let metrics = MetricsLog::resume(folder.metrics(), trainer.steps())?;
        let records = MetricsLog::read(folder.metrics())?;
        let earlier = records.iter().filter_map(|record| record["seconds"].as_f64()).fold(0.0, f64::max);
        let device = match memory.device() {
            Device::Cpu => None,
            Device::Cuda(cuda) => Some(CapturedStep::new(cuda, config.train.capture)),
        };
        Ok(Self { trainer, device, config, folder, metrics, memory, earlier, start: Instant::now() })
    }

    fn seconds(&self) -> f64 {
        self.earlier + self.start.elapsed().as_secs_f64()
    }

    /// Takes the remaining steps.
    fn fit(
        &mut self,
        batches: &mut impl Iterator<Item = gradewise_nn::Result<Example>>,
        valid: &NBodyData,
        interrupt: &Interrupt,
    ) -> Result<End> {
        let train = &self.config.train;
        let progress = Progress::new(train.steps, self.trainer.steps());
        let due = |every: u64, step: u64| step == train.steps || (every > 0 && step.is_multiple_of(every));
        let budget = (train.time_budget > 0.0)
            .then(|| Duration::try_from_secs_f64(train.time_budget).unwrap_or(Duration::MAX));
        let mut losses = Vec::new();
        while self.trainer.steps() < train.steps {
            let loss = |model: &NBody, example: &Example| model.loss(&example.batch, &example.targets);
            let report = match &mut self.device {
                Some(device) => device.step(&mut self.trainer, batches, loss),
                None => self.trainer.step(batches, loss),
            };
            let report = match report {
                Ok(report) => report,
                Err(error) => {
                    // What was reached is worth keeping whatever went wrong, but the first error is the one to report.
                    let _ = self.checkpoint();
                    return Err(error.into());
                }
            };
            let step = report.step;
            losses.extend(Some(report.loss).filter(|loss| loss.is_finite()));
            progress.step(|| format!("loss {:.4}", report.loss));
            if due(train.log_every, step) {
                self.record(&report, &losses)?;
            }
            if due(train.eval_every, step) {
                let error = self.trainer.evaluate(|model| nbody::evaluate(model, valid))?;
                let recent = losses.iter().sum::<f64>() / losses.len() as f64;
                self.metrics.write(&json!({"step": step, "valid_mse": error, "seconds": self.seconds()}))?;
                progress.line(&format!(
                    "step {step:>6}/{}  train {recent:.4}  valid {error:.4}  lr {:.1e}  {:.0} s",
                    train.steps,
                    report.lr,
                    self.seconds()
                ));
            }
            if due(train.log_every, step) {
                losses.clear();
            }
            if due(train.checkpoint_every, step) {
                self.checkpoint()?;
            }
            let end = match () {
                () if interrupt.requested() => Some(End::Interrupted),
                () if budget.is_some_and(|budget| self.start.elapsed() >= budget) => Some(End::OutOfTime),
                () => None,
            };
            if let Some(end) = end.filter(|_| step < train.steps) {
                self.checkpoint()?;
                return Ok(end);
            }
        }
        Ok(End::Done)
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
            "seconds": self.seconds(),
            "gradient_norms": gradients,
        });
        Ok(self.metrics.write(&record)?)
    }

    fn checkpoint(&self) -> Result<()> {
        let sizes = NBodyConfig { hidden: self.config.model.hidden, layers: self.config.model.layers };
        let sizes = serde_json::to_value(sizes).unwrap_or(Value::Null);
        Ok(self.trainer.checkpoint(nbody::NAME, sizes)?.write(self.folder.checkpoint())?)
    }

    /// Draws the figures and reports on the test split.
    fn finish(mut self, end: End, test: &Trajectories) -> Result<Outcome> {
        let (folder, steps) = (self.folder.path().display().to_string(), self.trainer.steps());
        let records = MetricsLog::read(self.folder.metrics())?;
        plots::loss(&self.folder.loss(), &history(&records), "n-body: loss and learning rate")?;
        if end == End::Interrupted {
            return Err(Error::Interrupted(format!(
                "interrupted after step {steps}; go on with: gradewise train nbody --resume {folder}"
            )));
        }
        let data = NBodyData::from_trajectories(test)?;
        let error = self.trainer.evaluate(|model| nbody::evaluate(model, &data))?;
        let panels = self.trainer.evaluate(|model| nbody::panels(model, test))?;
        let title = "n-body: positions at frame 40 predicted from frame 30 (simulation units)";
        plots::trajectories(&self.folder.trajectories(), &panels, title)?;
        let (seconds, memory) = (self.seconds(), self.memory.usage()?);
        self.metrics
            .write(&json!({"step": steps, "test_mse": error, "seconds": seconds, "memory": memory}))?;
        let mut text = format!(
            "\ntest MSE {error:.4} on {} samples after {steps} steps, {:.0} s of training\n\n{}\n",
            data.len(),
            seconds,
            nbody::table(error)
        );
        text += &format!("memory      {memory} on {}\n", self.memory.device());
        text += &format!(
            "run folder  {folder}\n            config.toml metrics.jsonl checkpoint.safetensors loss.svg trajectories.svg\n"
        );
        if end == End::OutOfTime {
            text += &format!("out of time; go on with  gradewise train nbody --resume {folder}\n");
        }
        text += &format!("full run    gradewise train nbody {PAPER_OVERRIDES}\n");
        output::print(&text)?;
        Ok(Outcome { test_mse: error, steps, seconds })
    }
}

/// The curves in the records of a run.
fn history(records: &[Value]) -> plots::LossHistory {
    let series = |key: &str| -> Vec<(u64, f64)> {
        records.iter().filter_map(|record| Some((record["step"].as_u64()?, record[key].as_f64()?))).collect()
    };
    plots::LossHistory { train: series("train_loss"), valid: series("valid_mse"), lr: series("lr") }
}
