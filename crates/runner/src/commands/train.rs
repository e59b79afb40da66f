//! `train`: a command for each task.

use crate::{
    TaskCommand,
    config::{Fallback, Resolver},
    error::Result,
    options::{Settings, one_of},
    program::{Registered, shown},
    task::Task,
    training::{self, Request},
};
use clap::{ArgMatches, Args, FromArgMatches};
use gradewise_nn::choice::Choice;
use std::path::PathBuf;

/// Train a model.
#[derive(Debug)]
pub struct Train {
    task: String,
    run: TrainRun,
    /// Options of the task, as the settings they set, with their values.
    given: Vec<(String, String)>,
}

impl Args for Train {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.about("Train a model").subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Train {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (task, matches) = matches
            .subcommand()
            .ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        let run = TrainRun::from_arg_matches(matches)?;
        // The ids of the task's options are names of settings.
        let options = matches.ids().map(clap::Id::as_str).filter(|id| id.contains('.'));
        let given = options.filter_map(|key| Some((key.to_owned(), matches.get_one::<String>(key)?.clone())));
        Ok(Self { task: task.to_owned(), run, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl TaskCommand for Train {
    const NAME: &'static str = "train";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        Ok(Some((self.task.clone(), ())))
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        let run = &self.run;
        training::run::<T>(&Request {
            out: run.out.as_deref(),
            resume: run.resume.as_deref(),
            preset: run.preset.as_deref(),
            seeds: run.seeds.as_deref(),
            at_once: run.at_once,
            curve: run.curve.as_deref(),
            sweep: &run.sweep,
            dump: run.dump.as_deref(),
            show: run.show,
            settings: &|resolver| run.apply(&self.given, resolver),
        })
    }

    fn arguments(command: clap::Command, tasks: &[Registered]) -> clap::Command {
        tasks.iter().fold(command, |command, task| command.subcommand(of_task(task)))
    }
}

/// `train TASK`
fn of_task(task: &Registered) -> clap::Command {
    let mut command = TrainRun::augment_args(clap::Command::new(task.name)).about(task.about);
    let details = if task.details.is_empty() { "" } else { "\n\n" };
    command = command.long_about(format!("{}.{details}{}", task.about, task.details));
    let presets: Vec<String> = task.presets.iter().map(|(name, about)| format!("{name} ({about})")).collect();
    if let Some((default, _)) = task.presets.first() {
        let help = format!("Settings under a name [default: {default}]: {}", presets.join(", "));
        command = command.mut_args(|argument| match argument.get_id().as_str() {
            "preset" => argument.help(help.clone()).long_help(help.clone()),
            _ => argument,
        });
    }
    for option in task.options {
        let argument = clap::Arg::new(option.setting).long(option.name).value_name(option.value);
        command = command.arg(argument.help(option.help));
    }
    match task.examples {
        "" => command,
        some => command.after_help(shown(some)),
    }
}

/// Options of the training of a model.
#[derive(Clone, Debug, Args)]
pub struct TrainRun {
    /// Folder of the run [default: runs/TASK-N with the first free N]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Settings under a name.
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub preset: Option<String>,
    /// Several runs, one after another or some --at-once, into folders seed-N of the run folder: a list such as 0,1,2, or a number of seeds
    /// from train.seed on. summary.json has each test error, mean and standard deviation, and the error of the mean of all predictions;
    /// ensemble.safetensors is all models in one checkpoint, for eval.
    #[arg(long, value_name = "LIST|COUNT", conflicts_with = "resume")]
    pub seeds: Option<String>,
    /// Number of runs of --seeds to train at the same time, on a GPU each in its own stream. A single small model cannot keep a GPU busy,
    /// because each of its kernels waits for the previous one.
    #[arg(long, value_name = "N", requires = "seeds", default_value_t = 1)]
    pub at_once: usize,
    /// A learning curve: runs with these numbers of training samples, into folders train-N/seed-S of the run folder.
    /// curve.json, curve.svg and a table have the test errors.
    #[arg(long, value_name = "LIST", conflicts_with = "resume")]
    pub curve: Option<String>,
    /// Runs with each of these values of a setting, one after another, into folders named by it: train.lr=1e-3,1e-2. Several --sweep make a
    /// grid, --seeds each run several times. A run that fails does not end the others. sweep.json and a table have the test errors;
    /// with --out FOLDER of an earlier sweep, runs that are done are skipped, and others go on.
    #[arg(long, value_name = "KEY=LIST", conflicts_with_all = ["resume", "curve", "devices", "dump"])]
    pub sweep: Vec<String>,
    /// Several processes on this host, one for each device: a number, or auto for all GPUs. Batches are divided among them, so results are
    /// those of one device to rounding. The output of ranks other than 0 is in logs/ of the run folder. (runtime.devices)
    #[arg(long, value_name = "N|auto", conflicts_with_all = ["seeds", "curve"])]
    devices: Option<String>,
    /// Minimum number of GPUs to accept if there are fewer than --devices.
    #[arg(long, value_name = "N")]
    min_devices: Option<u32>,
    /// Fallback if there are fewer GPUs still: cpu, in one process.
    #[arg(long, value_name = "cpu", value_parser = one_of::<Fallback>(), hide_possible_values = true)]
    fallback: Option<Fallback>,
    /// Divide batches into the smallest number of parts that fit the free memory; a step uses the same samples. (runtime.fit_memory)
    #[arg(long)]
    fit_memory: bool,
    /// Write what layers compute for the first samples, before the first step, into dump/LAYER.npy of the run folder: names such as
    /// layers.1.edge.0, separated by commas.
    #[arg(long, value_name = "LAYERS", conflicts_with_all = ["seeds", "curve"])]
    pub dump: Option<String>,
    /// Print all settings as they would be used, in the form that --config takes, and train nothing.
    #[arg(long = "settings")]
    pub show: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl TrainRun {
    /// Applies all options to a configuration; `given` holds the options of the task as (setting, value). `key=value` takes precedence.
    fn apply<'a>(&self, given: &[(String, String)], resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        self.settings.apply_with(resolver, |resolver| {
            for (key, value) in given {
                resolver.set(key, value.as_str(), &format!("{key}={value}"))?;
            }
            if let Some(devices) = &self.devices {
                resolver.set("runtime.devices", devices.as_str(), &format!("--devices {devices}"))?;
            }
            if let Some(count) = self.min_devices {
                resolver.set("runtime.min_devices", i64::from(count), &format!("--min-devices {count}"))?;
            }
            if let Some(fallback) = self.fallback {
                resolver.set("runtime.fallback", fallback.name(), &format!("--fallback {fallback}"))?;
            }
            if self.fit_memory {
                resolver.set("runtime.fit_memory", true, "--fit-memory")?;
            }
            Ok(())
        })
    }
}
