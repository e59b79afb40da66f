//! What a run is, where and how it was made, and what it was worth: `run.json` of its folder, which `report.html` is drawn from.

use crate::{
    config,
    error::Result,
    output,
    run::{RunFolder, environment},
    task::{self, Comparison, Measures, Task, TaskConfig},
};
use gradewise_bench::gpu;
use gradewise_kernels::Device;
use gradewise_nn::{Placement, checkpoint::replace_file};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, time::SystemTime};

/// A process that trained the run: the first, and one for each time that it was resumed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sitting {
    /// When it began, as `2026-11-27T23:15:00Z`.
    pub begun: String,
    /// The step that it went on from.
    pub from_step: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The version of gradewise.
    pub version: String,
    /// `git describe` of the folder in which the command was given, if that is a repository.
    pub commit: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The device, with the model of the GPU or the processor.
    pub device: String,
    /// The number of processes, one for each device.
    pub processes: usize,
    /// Threads of the CPU backend.
    pub threads: usize,
}

/// A setting that the user or a machine's preset changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Its dotted key.
    pub key: String,
    /// Its value, as TOML.
    pub value: String,
    /// The value in the preset.
    pub preset: String,
}

/// A measure of the trained model on the test split.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The name in files, without the split: `mse`.
    pub key: String,
    /// The name in text: `MSE`.
    pub label: String,
    /// `None` if it is not finite.
    pub value: Option<f64>,
    /// Its standard error, if that is known.
    #[serde(default)]
    pub error: Option<f64>,
}

/// The contents of `run.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// The name of the task.
    pub task: String,
    /// [`Task::TITLE`].
    pub title: String,
    /// [`Task::ABOUT`].
    pub about: String,
    /// [`Task::LOSS`].
    pub loss: String,
    /// [`Task::DECIDES`].
    pub decides: String,
    /// [`Task::GROUP`].
    pub group: String,
    /// The preset.
    pub preset: String,
    /// The settings that differ from the preset.
    pub changed: Vec<Setting>,
    /// The number of parameters.
    pub parameters: usize,
    /// The dtype of the weights.
    pub dtype: String,
    /// Steps to be taken.
    pub steps: u64,
    /// All processes that trained it, in their order.
    pub sittings: Vec<Sitting>,
    /// The number of test samples.
    pub test_samples: Option<usize>,
    /// The measures on the test split, the primary one first; empty before the end.
    pub measures: Vec<Measured>,
    /// Results beside which they stand.
    pub comparison: Option<Comparison>,
}

impl About {
    /// A run that begins, or goes on in its folder.
    ///
    /// # Errors
    /// Settings that TOML cannot represent.
    pub fn of<T: Task>(
        folder: &RunFolder,
        preset: Option<&str>,
        config: &TaskConfig<T>,
        placement: &Placement,
        (parameters, step): (usize, u64),
        processes: usize,
    ) -> Result<Self> {
        let earlier = Self::read(folder);
        let first = T::PRESETS.first().map_or("", |preset| preset.name);
        // A folder of another version may name a preset that is no more.
        let kept = earlier.as_ref().map(|run| run.preset.as_str());
        let kept = kept.filter(|name| T::PRESETS.iter().any(|preset| preset.name == *name));
        let preset = preset.or(kept).unwrap_or(first).to_owned();
        let named = task::resolve::<T>(&task::resolver::<T>(Some(&preset))?)?;
        let changed = config::differences(&config::table(config)?, &config::table(&named)?);
        let changed = changed.into_iter().map(|(key, value, preset)| Setting { key, value, preset });
        let mut sittings = earlier.map_or_else(Vec::new, |run| run.sittings);
        sittings.push(Sitting::now(placement, processes, step));
        Ok(Self {
            task: T::NAME.to_owned(),
            title: T::TITLE.to_owned(),
            about: T::ABOUT.to_owned(),
            loss: T::LOSS.to_owned(),
            decides: T::DECIDES.to_owned(),
            group: T::GROUP.to_owned(),
            preset,
            changed: changed.collect(),
            parameters,
            dtype: placement.dtype.to_string(),
            steps: config.train.trainer.steps,
            sittings,
            test_samples: None,
            measures: Vec::new(),
            comparison: None,
        })
    }

    /// Adds the results on the test split.
    pub fn measured(&mut self, measures: &Measures, samples: usize, comparison: Option<Comparison>) {
        let measured = |measure: &task::Measure| Measured {
            key: measure.key.to_owned(),
            label: measure.label.to_owned(),
            value: Some(measure.value).filter(|value| value.is_finite()),
            error: measure.error.filter(|error| error.is_finite()),
        };
        self.measures = measures.iter().map(measured).collect();
        self.test_samples = Some(samples);
        self.comparison = comparison;
    }

    /// What a folder says of its run; `None` if it does not, as folders of earlier versions.
    pub fn read(folder: &RunFolder) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.about()).ok()?).ok()
    }

    /// Writes it into the folder of the run.
    ///
    /// # Errors
    /// From writing.
    pub fn write(&self, folder: &RunFolder) -> Result<()> {
        output::write_json(&folder.about(), self)
    }

    /// Writes `environment.txt`: the processes that trained the run, and the machine of the last one.
    ///
    /// # Errors
    /// From writing.
    pub fn write_environment(&self, folder: &RunFolder) -> Result<()> {
        let mut text: String = self.sittings.iter().map(Sitting::text).collect();
        text += &environment::describe();
        Ok(replace_file(folder.environment(), |file| file.write_all(text.as_bytes()))?)
    }
}

impl Sitting {
    /// This process, which goes on from `step`.
    fn now(placement: &Placement, processes: usize, step: u64) -> Self {
        let device = match &placement.device {
            Device::Cpu => environment::processor(),
            Device::Cuda(cuda) => Some(cuda.info().name.clone()),
        };
        let device = device.map_or_else(String::new, |model| format!(" ({model})"));
        Self {
            begun: gradewise_bench::date(SystemTime::now()),
            from_step: step,
            command: command(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: gpu::commit(),
            host: gradewise_distributed::host_name(),
            device: format!("{}{device}", placement.device),
            processes,
            threads: rayon::current_num_threads(),
        }
    }

    /// Its lines in `environment.txt`.
    fn text(&self) -> String {
        let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut text = String::new();
        for (name, value) in [
            ("begun", format!("{} at step {}", self.begun, self.from_step)),
            ("command", self.command.join(" ")),
            ("version", self.version.clone()),
            ("commit", format!("{} of the folder of the command", or_unknown(&self.commit))),
            ("host", or_unknown(&self.host)),
            ("device", format!("{}, {} process(es)", self.device, self.processes)),
            ("threads", self.threads.to_string()),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<12}{value}");
        }
        text + "\n"
    }
}

/// The command line of this process, without values that are named as secrets, and with the program's name in place of its path.
fn command() -> Vec<String> {
    let mut hidden = false;
    let arguments = std::env::args().skip(1).map(|argument| {
        let named = environment::names_secret(&argument);
        let shown = match argument.split_once('=') {
            Some((name, _)) if named => format!("{name}=<secret>"),
            _ if hidden => "<secret>".to_owned(),
            _ => argument.clone(),
        };
        hidden = named && !argument.contains('=');
        shown
    });
    std::iter::once(output::program().to_owned()).chain(arguments).collect()
}
