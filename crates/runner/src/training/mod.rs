//! A complete run, from data to figures.

mod curve;
mod devices;
pub mod fit;
mod seeds;
mod session;
mod steps;
mod sweep;

use crate::{
    config::{self, Resolver},
    error::{Error, Result},
    output,
    page::{self, About},
    run::{self, Caller, DumpRequest, Energy, Interrupt, Memory, RunFolder, Team},
    task::{self, Measures, Task, TaskConfig},
};
pub use devices::{describe, nccl_variables};
use gradewise_distributed::Launch;
use gradewise_nn::{
    Module, Placement,
    checkpoint::Checkpoint,
    data::{Split, loader::BatchOrder},
    optim::MixedPrecision,
    train::{Samples, Trainer},
};
use session::{Losses, Session};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// The request of a training command, besides the settings.
pub struct Request<'a> {
    /// Folder of the run; `None` for the first free one.
    pub out: Option<&'a Path>,
    /// The folder of a run to resume.
    pub resume: Option<&'a Path>,
    /// The preset.
    pub preset: Option<&'a str>,
    /// Several runs that differ in their seed: a list or a number.
    pub seeds: Option<&'a str>,
    /// The number of concurrent runs.
    pub at_once: usize,
    /// Several runs that differ in their number of samples: a list.
    pub curve: Option<&'a str>,
    /// Several runs that differ in some settings: a setting and its values each.
    pub sweep: &'a [String],
    /// Layers whose results for the first samples are written, separated by commas.
    pub dump: Option<&'a str>,
    /// Only prints the settings.
    pub show: bool,
    /// Applies the settings of the command line on top of the other layers.
    pub settings: &'a dyn for<'r> Fn(&'r mut Resolver) -> Result<&'r mut Resolver>,
}

/// Trains a task: one run, several seeds or a learning curve, in this process or in processes that it starts.
///
/// # Errors
/// Settings, data or devices that cannot be used; those of the runs.
pub fn run<T: Task>(arguments: &Request<'_>) -> Result<()> {
    let mut resolver = task::resolver::<T>(arguments.preset)?;
    let resumed = arguments.resume.map(RunFolder::open).transpose()?;
    if let Some(folder) = &resumed {
        resolver.file(&folder.config())?;
    }
    (arguments.settings)(&mut resolver)?;
    let config = task::resolve::<T>(&resolver)?;
    if arguments.show {
        return output::print(&config::text(&config)?);
    }
    let seeds = arguments.seeds.as_ref().map(|text| seeds::parse(text, config.train.seed)).transpose()?;
    let curve = arguments.curve.as_ref().map(|text| curve::configs::<T>(text, &resolver)).transpose()?;
    let grid = (!arguments.sweep.is_empty()).then(|| sweep::Grid::parse(arguments.sweep)).transpose()?;
    if let Some(grid) = &grid {
        if arguments.at_once > 1 {
            let reason = "runs of a sweep run one after another; leave out --at-once";
            return Err(Error::Usage(format!("--sweep: {reason}")));
        }
        if seeds.is_some() && grid.has("train.seed") {
            let reason = "sweep over train.seed, or give --seeds, but not both";
            return Err(Error::Usage(format!("--sweep: {reason}")));
        }
    }
    let several = seeds.is_some() || curve.is_some() || grid.is_some();
    let mut config = config;
    if arguments.at_once > 1 && config.runtime.fit_memory {
        return Err(Error::Usage(
            "--fit-memory measures what is free, and runs --at-once share it; leave out one of them"
                .to_owned(),
        ));
    }
    run::require_deterministic(&config.runtime, Launch::from_env()?.as_ref())?;
    let launch = match devices::plan(&mut config.runtime)? {
        devices::Planned::Here(launch) => launch,
        devices::Planned::Elsewhere(_) if several => return Err(one_at_a_time()),
        devices::Planned::Elsewhere(plan) => {
            return devices::supervise::<T>(arguments, &plan, config.runtime.deterministic);
        }
    };
    if launch.is_some() && several {
        return Err(one_at_a_time());
    }
    let caller = if arguments.at_once > 1 { Caller::Others } else { Caller::This };
    let placement = run::placement_for(caller, &config.runtime, launch.as_ref())?;
    let team = Team::join(launch.as_ref(), &placement.device)?;
    let grid = grid.as_ref().map(|grid| (grid, &resolver));
    let result = shared::<T>(arguments, &config, resumed, (seeds, curve, grid), placement, &team);
    team.leave(result)
}

fn one_at_a_time() -> Error {
    Error::Usage(
        "--seeds, --curve and --sweep are runs one after another, each on one device; leave the launcher and --devices out"
            .to_owned(),
    )
}

/// What several runs differ in: seeds, settings of a learning curve, a grid over the settings.
type Several<'a, T> = (Option<Vec<u64>>, Option<Vec<TaskConfig<T>>>, Option<(&'a sweep::Grid, &'a Resolver)>);

/// The work of each process of a run, on its part of the batches.
fn shared<T: Task>(
    arguments: &Request<'_>,
    config: &TaskConfig<T>,
    resumed: Option<RunFolder>,
    (seeds, curve, grid): Several<'_, T>,
    placement: Placement,
    team: &Team,
) -> Result<()> {
    // Before the data are read: what another process writes there is not touched.
    let resumed = match resumed {
        Some(folder) if team.leads() => Some(folder.locked()?),
        other => other,
    };
    let largest = curve.as_ref().and_then(|configs| configs.last()).unwrap_or(config);
    let data = Splits::<T>::load(largest, team.leads())?;
    let interrupt = Interrupt::listen();
    if team.leads() && run::is_supervised() {
        let interrupt = interrupt.clone();
        run::obey_supervisor(move || interrupt.request());
    }
    let dump = arguments.dump;
    let (preset, at_once) = (arguments.preset, arguments.at_once);
    let runs = Runs { placement, data, interrupt, team, at_once, dump, preset };
    let out = arguments.out;
    if let Some((grid, resolver)) = grid {
        return sweep::train(&runs, grid, (resolver, config), seeds.as_deref(), out);
    }
    match (curve, seeds) {
        (Some(configs), seeds) => {
            curve::train(&runs, &configs, &seeds.unwrap_or_else(|| vec![config.train.seed]), out)
        }
        (None, Some(seeds)) => {
            let parent = RunFolder::create(out, T::NAME)?;
            seeds::train(&runs, config, &seeds, parent.path())?.report(parent.path())
        }
        (None, None) => {
            let place = match resumed {
                Some(folder) => Place::Resumed(folder),
                None => Place::New(out.map(Path::to_owned)),
            };
            runs.train(config, place)?.map_or(Ok(()), |outcome| outcome.verdict())
        }
    }
}

/// The samples of a run.
struct Splits<T: Task> {
    train: Arc<T::Data>,
    valid: Arc<T::Data>,
    test: Arc<T::Data>,
}

impl<T: Task> Clone for Splits<T> {
    fn clone(&self) -> Self {
        let Self { train, valid, test } = self;
        Self { train: Arc::clone(train), valid: Arc::clone(valid), test: Arc::clone(test) }
    }
}

impl<T: Task> Splits<T> {
    /// All splits for the leading process; the others do not evaluate, and need only the training split.
    fn load(config: &TaskConfig<T>, leads: bool) -> Result<Self> {
        let start = Instant::now();
        let load = |split| T::load(&config.data, split).map(Arc::new);
        let train = load(Split::Train)?;
        if !leads {
            return Ok(Self { valid: Arc::clone(&train), test: Arc::clone(&train), train });
        }
        let (valid, test) = (load(Split::Valid)?, load(Split::Test)?);
        output::note(&format!(
            "data: {} train, {} valid, {} test samples in {:.1} s",
            train.len(),
            valid.len(),
            test.len(),
            start.elapsed().as_secs_f64()
        ));
        Ok(Self { train, valid, test })
    }
}

/// The folder of a run's files.
enum Place {
    /// The folder of an earlier run, which is resumed.
    Resumed(RunFolder),
    /// This folder, or the first free one.
    New(Option<PathBuf>),
}

/// The outcome of a run.
#[derive(Clone, Debug)]
struct Outcome {
    test: Measures,
    /// The primary measure of the best weights on the valid split; `None` if the last weights are reported.
    valid: Option<f64>,
    asymmetry: Option<f64>,
    steps: u64,
    /// The number of steps skipped because loss or gradients were not finite.
    skipped: u64,
    seconds: f64,
    joules: Option<f64>,
}

impl Outcome {
    /// Checks that the trained weights give finite predictions.
    ///
    /// # Errors
    /// [`Error::Diverged`].
    fn verdict(&self) -> Result<()> {
        let skipped = match self.skipped {
            0 => String::new(),
            some => format!(", {some} of which were skipped because loss or gradients were not finite"),
        };
        self.test.verdict("test", &format!("the weights after {} steps{skipped},", self.steps))
    }
}

/// The common data of several runs with different settings.
struct Runs<'a, T: Task> {
    placement: Placement,
    data: Splits<T>,
    interrupt: Interrupt,
    team: &'a Team,
    /// The number of concurrent runs.
    at_once: usize,
    /// Layers whose results for the first samples are written into the run folder, separated by commas.
    dump: Option<&'a str>,
    /// The preset that was asked for.
    preset: Option<&'a str>,
}

impl<T: Task> Runs<'_, T> {
    /// One run, from its first or next step to its figures; no outcome at ranks other than 0.
    fn train(&self, config: &TaskConfig<T>, place: Place) -> Result<Option<Outcome>> {
        let (placement, data) = (&self.placement, &self.data);
        let fitted =
            config.runtime.fit_memory.then(|| fit::fit::<T>(config, &data.train, placement, self.team));
        let fitted = fitted.transpose().map_err(|error| self.explained(error, config))?;
        let config = fitted.as_ref().unwrap_or(config);
        run::census(&config.runtime, None);
        let samples = T::training_samples(&data.train, &config.data);
        let mut order = BatchOrder::sequential(samples, config.train.batch_size)?
            .shuffled(config.train.seed)
            .drop_last()?;
        if let Some(lengths) = data.train.lengths() {
            order = order.by_length(lengths)?;
        }
        let memory = Memory::start(&placement.device);
        let model = task::model_of::<T>(None, config, &data.train, placement)?;
        let mixed = run::mixed_precision(&config.runtime)?;
        let mut trainer = trainer_of::<T>(model, config, mixed.as_ref())?;
        if let Some(mixed) = &mixed {
            output::note(&format!("mixed precision:\n{}", mixed.policy));
        }
        output::note(&format!(
            "model: {} parameters, {} on {}",
            trainer.model().parameter_count(),
            placement.dtype,
            placement.device
        ));
        let mut losses = Losses::default();
        let folder = match place {
            Place::Resumed(folder) if !folder.has_begun() => {
                let path = folder.path().display();
                output::note(&format!(
                    "resumed: {path} ended before its first checkpoint, so the run begins again"
                ));
                Some(folder)
            }
            Place::Resumed(folder) => {
                let checkpoint = Checkpoint::read(folder.checkpoint())?;
                trainer.resume(&checkpoint, T::NAME, &task::identity::<T>(&config.model))?;
                losses = Losses::of(&checkpoint.metadata);
                output::note(&format!("resumed: {} after step {}", folder.path().display(), trainer.steps()));
                Some(folder)
            }
            Place::New(_) if !self.team.leads() => None,
            Place::New(out) => Some(RunFolder::create(out.as_deref(), T::NAME)?),
        };
        if let (Some(layers), Some(folder)) = (self.dump, &folder) {
            let first: Vec<usize> = (0..config.train.batch_size).collect();
            let batch = data.train.batch(&first, placement)?;
            let look = || trainer.look([Ok(batch)], T::loss);
            let request = DumpRequest { layers, folder: folder.path(), inputs: &[], overwrite: false };
            run::dumped(Some(request), trainer.model(), look)?;
        }
        self.team.attach(&mut trainer)?;
        let first = trainer.steps() * config.train.trainer.accumulation as u64;
        let loading = run::loading(placement);
        let sampler = self.team.sampler(&order)?;
        let mut batches = sampler.load(Arc::clone(&data.train), first, &loading, config.runtime.prefetch)?;
        match folder.filter(|_| self.team.leads()) {
            None => {
                let followed = session::follow::<T>(trainer, config, &memory, &mut batches, self.team);
                drop(batches);
                followed.map(|()| None).map_err(|error| self.explained(error, config))
            }
            Some(folder) => {
                folder.write_config(config)?;
                let kept = RunFolder::at(folder.path());
                let begun = (trainer.model().parameter_count(), trainer.steps());
                let about = About::of::<T>(&kept, self.preset, config, placement, begun, self.team.world())?;
                about.write(&kept)?;
                about.write_environment(&kept)?;
                // The energy counter covers everything on the device, so it is meaningless for concurrent runs.
                let energy =
                    if self.at_once > 1 { Energy::uncounted() } else { Energy::start(&placement.device) };
                let mut session = Session::<T>::open(
                    trainer,
                    config,
                    placement,
                    (folder, about),
                    losses,
                    (memory, energy),
                    self.team,
                )?;
                let fitted = kept.keeping_panics(|| session.fit(&mut batches, &data.valid, &self.interrupt));
                let steps = session.steps();
                let result = match fitted {
                    Ok(end) => {
                        kept.keeping_panics(|| session.finish(end, &data.test, &self.interrupt)).map(Some)
                    }
                    // The memory of the run must be freed before the needs are measured.
                    Err(error) => {
                        drop((session, batches));
                        Err(self.explained(error, config))
                    }
                };
                // A diverged run has both an outcome, which is compared with other seeds, and an error.
                match &result {
                    Ok(Some(outcome)) => kept.keep_error(steps, &outcome.verdict()),
                    _ => kept.keep_error(steps, &result),
                }
                page::refresh(kept.path());
                result
            }
        }
    }
}

impl<T: Task> Runs<'_, T> {
    /// Adds remedies to an out-of-memory error. Other processes of the run wait meanwhile.
    fn explained(&self, error: Error, config: &TaskConfig<T>) -> Error {
        if !error.is_out_of_memory() {
            return error;
        }
        let advice = match fit::advice::<T>(config, &self.data.train, &self.placement, self.team.world()) {
            Ok(found) => found.text,
            Err(worse) => format!("what a step takes could not be measured: {worse}"),
        };
        Error::OutOfMemory { source: Box::new(error), advice }
    }
}

/// Refuses folders that exist already. Checked for all runs before the first one starts.
fn refuse_existing(mut folders: impl Iterator<Item = PathBuf>) -> Result<()> {
    match folders.find(|folder| folder.exists()) {
        None => Ok(()),
        Some(taken) => Err(Error::Usage(format!(
            "{} exists already; choose another folder by --out, or other runs",
            taken.display()
        ))),
    }
}

/// Makes the trainer of a model from the settings.
///
/// # Errors
/// As those of [`Trainer::new`] and [`Trainer::mixed_precision`].
pub fn trainer_of<T: Task>(
    model: T::Model,
    config: &TaskConfig<T>,
    mixed: Option<&MixedPrecision>,
) -> Result<Trainer<T::Model>> {
    let trainer = Trainer::new(model, config.train.trainer.clone())?;
    match mixed {
        Some(mixed) => Ok(trainer.mixed_precision(mixed)?),
        None => Ok(trainer),
    }
}
