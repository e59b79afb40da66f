//! The settings that all runs share.

use super::{
    ConfigError, Resolver, as_text, bounds,
    names::{BudgetOf, Census, Fallback, Precision, Select, Strategy},
};
use gradewise_autograd::{Rule, backend::Backend};
use gradewise_distributed::Wanted;
use gradewise_kernels::{Compute, DType, DeviceName};
use gradewise_nn::{
    choice,
    train::{ScheduleKind, TrainerConfig},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, fmt::Debug};

/// A table of settings that a task brings.
pub trait Section: Clone + PartialEq + Debug + Serialize + DeserializeOwned + Send + Sync {}

impl<S: Clone + PartialEq + Debug + Serialize + DeserializeOwned + Send + Sync> Section for S {}

/// `[data]` of a task.
pub trait DataSection: Section {
    /// Checks constraints beyond types.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted.
    fn validate(&self) -> Result<(), ConfigError>;

    /// Number of training samples: `data.train`.
    fn train(&self) -> usize;

    /// The number of samples that these become by augmentation; they are the first ones of the augmented set.
    fn fitted(&self) -> usize {
        self.train()
    }
}

/// All settings of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config<D, M> {
    /// `[data]`
    pub data: D,
    /// `[model]`
    pub model: M,
    /// `[train]`
    pub train: Train,
    /// `[runtime]`
    pub runtime: Runtime,
}

/// `[train]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Train {
    /// The settings of the trainer. Warm-up and decay default to values derived from the number of steps.
    #[serde(flatten)]
    pub trainer: TrainerConfig,
    /// Samples of a batch.
    pub batch_size: usize,
    /// Record the steps on a GPU as a CUDA graph and replay it: bit-identical results, with one launch for each step.
    pub capture: bool,
    /// Compute several operators of a captured step by one generated kernel where that can be done: bit-identical results, with fewer
    /// launches. The first step waits until the kernels are compiled, once for a machine.
    pub fuse: bool,
    /// Which weights are reported.
    pub select: Select,
    /// Evaluations on the valid split without a better value after which the run ends early; 0 for never.
    pub patience: u64,
    /// Steps between records of the loss in metrics.jsonl; 0 for the end only.
    pub log_every: u64,
    /// Steps between evaluations on the valid split; 0 for the end only.
    pub eval_every: u64,
    /// Steps between checkpoints; 0 for the end only.
    pub checkpoint_every: u64,
    /// Stop after this many seconds of training, leaving a resumable checkpoint; 0 for no limit. Runs cut short this way are not
    /// reproducible in length.
    pub time_budget: f64,
    /// What that is the time of.
    pub budget_of: BudgetOf,
    /// Seed of the weights and of the order of the batches.
    pub seed: u64,
}

/// `[runtime]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// `cpu`, `cuda` or `cuda:N`.
    #[serde(with = "as_text")]
    pub device: DeviceName,
    /// Storage.
    #[serde(with = "choice")]
    pub dtype: DType,
    /// Arithmetic of matrix products.
    #[serde(with = "choice")]
    pub compute: Compute,
    /// Threads of the CPU backend; 0 for all cores. Results do not depend on it.
    pub threads: usize,
    /// Processes, one for each device: a number, or `auto` for all GPUs of this host.
    #[serde(with = "as_text")]
    pub devices: Wanted,
    /// Minimum number of GPUs to accept; 0 means all of `devices`.
    pub min_devices: usize,
    /// The fallback if there are fewer GPUs than `min_devices`.
    pub fallback: Fallback,
    /// How devices share the work.
    pub strategy: Strategy,
    /// Batches that a thread of the host prepares ahead of their use; 0 for none. Results do not depend on it.
    pub prefetch: usize,
    /// Before training, divide the batch into the smallest number of parts (`train.accumulation`) that fit the free memory, by measuring.
    pub fit_memory: bool,
    /// Limit of the memory of all arrays, in MiB, on a GPU of its device memory; 0 for no limit.
    pub memory_mib: usize,
    /// The details recorded for each live array, for reports about growing memory.
    pub census: Census,
    /// The same configuration gives bit-identical results on the same kind of machine: nondeterministic choices are refused or fixed.
    pub deterministic: bool,
    /// Stop when a step gives no finite loss or gradients, and name the first operation, forward or backward, that produced a NaN, or an
    /// infinity from finite numbers. For that, the step is recomputed.
    pub detect_anomaly: bool,
    /// Debug mode: launches on a GPU are synchronous and named in errors, new memory is poisoned, and anomalies are detected.
    pub debug_cuda: bool,
    /// Mixed precision.
    pub precision: Precision,
    /// The loss scale of the first step with precision f16; 0 for the default.
    pub loss_scale: f64,
    /// Overrides of the rules for operations in mixed precision, by the operation's name.
    #[serde(with = "choice::map")]
    pub autocast: BTreeMap<String, Rule>,
    /// Implementations by operation, or by `OPERATION.forward` and `OPERATION.backward`.
    #[serde(with = "choice::map")]
    pub backends: BTreeMap<String, Backend>,
}

/// The most prefetched batches: they stay in memory until they are used.
const MOST_PREFETCHED: usize = 1024;
/// The most threads: more than any machine has cores, and starting them takes longer than a run of a minute.
const MOST_THREADS: usize = 1024;
/// The most processes of a run on one host.
const MOST_DEVICES: usize = 1024;
/// The most batches of a step.
const MOST_ACCUMULATED: usize = 1_000_000;
/// The largest learning rate: the update of every rule here overflows f32 soon after.
const LARGEST_RATE: f64 = 1e30;

impl Default for Train {
    fn default() -> Self {
        Self {
            trainer: TrainerConfig::default(),
            batch_size: 100,
            capture: true,
            fuse: true,
            select: Select::Last,
            patience: 0,
            log_every: 25,
            eval_every: 250,
            checkpoint_every: 250,
            time_budget: 0.0,
            budget_of: BudgetOf::Run,
            seed: 0,
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            device: DeviceName::Cpu,
            dtype: DType::F32,
            compute: Compute::Exact,
            threads: 0,
            devices: Wanted::Count(1),
            min_devices: 0,
            fallback: Fallback::None,
            strategy: Strategy::DataParallel,
            prefetch: 2,
            fit_memory: false,
            memory_mib: 0,
            census: Census::Off,
            deterministic: true,
            detect_anomaly: false,
            debug_cuda: false,
            precision: Precision::Full,
            loss_scale: 0.0,
            autocast: BTreeMap::new(),
            backends: BTreeMap::new(),
        }
    }
}

/// Refuses an invalid value.
pub fn refuse(key: &'static str, actual: impl ToString, expected: &str) -> Result<(), ConfigError> {
    Err(ConfigError::Value { key, actual: actual.to_string(), expected: expected.to_owned() })
}

/// Refuses counts of zero.
pub fn at_least_one(counts: &[(&'static str, usize)]) -> Result<(), ConfigError> {
    match counts.iter().find(|(_, count)| *count == 0) {
        Some((key, _)) => refuse(key, 0, "at least 1"),
        None => Ok(()),
    }
}

impl<D: DataSection, M: Section> Config<D, M> {
    /// Resolves and checks the settings. The lengths of the schedule follow `train.steps` unless they are set; `check_model` checks the
    /// settings of the model.
    ///
    /// # Errors
    /// As [`Config::validate`].
    pub fn resolve(
        resolver: &Resolver,
        check_model: fn(&M) -> Result<(), ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut config: Self = resolver.finish().map_err(|error| match error {
            ConfigError::Negative { key, actual, expected } => {
                let expected = Self::least(resolver, &key, check_model).unwrap_or(expected);
                ConfigError::Negative { key, actual, expected }
            }
            other => other,
        })?;
        let trainer = &mut config.train.trainer;
        if !resolver.is_set("train.warmup_steps") {
            trainer.warmup_steps = TrainerConfig::usual_warmup(trainer.steps);
        }
        if !resolver.is_set("train.decay_steps") {
            trainer.decay_steps = TrainerConfig::usual_decay(trainer.steps);
        }
        config.validate(check_model)?;
        Ok(config)
    }

    /// The accepted range of a count, such as `at least 1`: the expectation in the error that validating 0 gives.
    fn least(
        resolver: &Resolver,
        key: &str,
        check_model: fn(&M) -> Result<(), ConfigError>,
    ) -> Option<String> {
        let mut zero = resolver.clone();
        match Self::resolve(zero.assignment(&format!("{key}=0")).ok()?, check_model) {
            Err(ConfigError::Value { key: refused, expected, .. }) if refused == key => Some(expected),
            _ => None,
        }
    }

    /// Checks constraints beyond types.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted.
    pub fn validate(&self, check_model: fn(&M) -> Result<(), ConfigError>) -> Result<(), ConfigError> {
        // First: what tasks check themselves may compute with these numbers.
        bounds::check("data", &self.data)?;
        bounds::check("model", &self.model)?;
        self.data.validate()?;
        check_model(&self.model)?;
        self.train.validate()?;
        let (batch, samples) = (self.train.batch_size, self.data.train());
        if batch > samples {
            return refuse("train.batch_size", batch, &format!("at most data.train = {samples}"));
        }
        self.runtime.validate()
    }
}

impl Runtime {
    /// Checks constraints beyond types.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let runtime = self;
        if runtime.prefetch > MOST_PREFETCHED {
            return refuse(
                "runtime.prefetch",
                runtime.prefetch,
                &format!("at most {MOST_PREFETCHED} batches"),
            );
        }
        if runtime.threads > MOST_THREADS {
            return refuse(
                "runtime.threads",
                runtime.threads,
                &format!("at most {MOST_THREADS}; 0 for as many as there are cores"),
            );
        }
        for (key, devices) in [
            ("runtime.devices", if let Wanted::Count(count) = runtime.devices { count } else { 0 }),
            ("runtime.min_devices", runtime.min_devices),
        ] {
            if devices > MOST_DEVICES {
                return refuse(
                    key,
                    devices,
                    &format!("at most {MOST_DEVICES}: each is a process on this host"),
                );
            }
        }
        if runtime.precision != Precision::Full && runtime.dtype != DType::F32 {
            return refuse("runtime.dtype", runtime.dtype, "f32, that of the weights in mixed precision");
        }
        if !(runtime.loss_scale >= 0.0 && runtime.loss_scale.is_finite()) {
            return refuse("runtime.loss_scale", runtime.loss_scale, "at least 0 (0 for the usual one)");
        }
        Ok(())
    }
}

impl Train {
    /// Whether the best weights on the valid split are kept and reported.
    pub fn keeps_best(&self) -> bool {
        self.select == Select::Best
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let t = &self.trainer;
        at_least_one(&[("train.batch_size", self.batch_size), ("train.accumulation", t.accumulation)])?;
        let [clip_norm, clip_value, ema] = [t.clip_norm, t.clip_value, t.ema].map(Option::unwrap_or_default);
        let time = self.time_budget;
        if t.accumulation > MOST_ACCUMULATED {
            return refuse("train.accumulation", t.accumulation, &format!("at most {MOST_ACCUMULATED}"));
        }
        for (key, value, accepted, expected) in [
            ("train.lr", t.lr, t.lr > 0.0 && t.lr <= LARGEST_RATE, "greater than 0 and at most 1e30"),
            (
                "train.final_lr",
                t.final_lr,
                (0.0..=LARGEST_RATE).contains(&t.final_lr),
                "at least 0 and at most 1e30",
            ),
            ("train.weight_decay", t.weight_decay, t.weight_decay >= 0.0, "at least 0 and finite"),
            ("train.momentum", t.momentum, (0.0..1.0).contains(&t.momentum), "at least 0 and less than 1"),
            ("train.clip_norm", clip_norm, clip_norm >= 0.0, "at least 0 (0 for no limit)"),
            ("train.clip_value", clip_value, clip_value >= 0.0, "at least 0 (0 for no limit)"),
            ("train.ema", ema, (0.0..1.0).contains(&ema), "at least 0 (none) and less than 1"),
            ("train.time_budget", time, time >= 0.0, "at least 0 seconds (0 for no limit)"),
        ] {
            // The negated condition also refuses NaN.
            if !(accepted && value.is_finite()) {
                return refuse(key, value, expected);
            }
        }
        if matches!(t.schedule, ScheduleKind::Cosine | ScheduleKind::Linear) && t.warmup_steps > t.steps {
            return refuse(
                "train.warmup_steps",
                t.warmup_steps,
                &format!(
                    "at most train.steps = {0}; where a preset has set it for more steps, add train.warmup_steps={1} \
                     train.decay_steps={2}, the usual ones for {0}",
                    t.steps,
                    TrainerConfig::usual_warmup(t.steps),
                    TrainerConfig::usual_decay(t.steps)
                ),
            );
        }
        Ok(())
    }
}
