//! Settings of `train nbody`.

use super::{ConfigError, Resolver};
use gradewise_nn::data::nbody::PARTICLES;
use serde::{Deserialize, Serialize};

/// The overrides that turn the defaults into the schedule of the paper (Ruhe et al. 2023).
pub const PAPER_OVERRIDES: &str = "train.steps=131072 train.warmup_steps=2048 train.decay_steps=32768 \
                                   train.lr=4e-3 train.eval_every=2048 train.checkpoint_every=2048";

/// Everything `train nbody` can be told. The defaults are a run of a few minutes on two cores.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NBody {
    pub data: Data,
    pub model: Model,
    pub train: Train,
    pub runtime: Runtime,
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// `simulate`, or the folder of the published NumPy files.
    pub source: String,
    /// Which files of the folder, such as `_charged5_initvel1small`; empty if there is but one set.
    pub suffix: String,
    /// Seed of the simulated systems.
    pub seed: u64,
    /// Number of samples to fit.
    pub train: usize,
    /// Number of samples to watch.
    pub valid: usize,
    /// Number of samples to report.
    pub test: usize,
    /// Particles of a simulated system.
    pub particles: usize,
}

/// `[model]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Multivector features of the hidden layers.
    pub hidden: usize,
    /// Message-passing layers.
    pub layers: usize,
}

/// `[train]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Optimiser steps.
    pub steps: u64,
    /// Samples of a batch.
    pub batch_size: usize,
    /// Batches whose gradients are averaged for one step.
    pub accumulation: usize,
    /// `adam`, `adamw` or `sgd`.
    pub optimizer: String,
    /// Highest learning rate.
    pub lr: f64,
    /// λ: L2 in the gradient for adam and sgd, decoupled for adamw.
    pub weight_decay: f64,
    /// Momentum of sgd.
    pub momentum: f64,
    /// `cosine`, `linear`, `step` or `constant`.
    pub schedule: String,
    /// Steps of rising learning rate; 1/40 of the steps unless set.
    pub warmup_steps: u64,
    /// Steps of falling learning rate at the end (cosine, linear), or between two drops to a tenth (step); 5/8 of the
    /// steps unless set.
    pub decay_steps: u64,
    /// Learning rate at the end (cosine, linear).
    pub final_lr: f64,
    /// Largest norm of all gradients together; 0 for no limit.
    pub clip_norm: f64,
    /// Record the steps on a GPU as a CUDA graph and replay it: the same bits, with one launch for each step.
    pub capture: bool,
    /// Decay of an exponential moving average of the weights, which is then what is evaluated; 0 for none.
    pub ema: f64,
    /// Steps between records of the loss in metrics.jsonl; 0 for the end only.
    pub log_every: u64,
    /// Steps between evaluations on the valid split; 0 for the end only.
    pub eval_every: u64,
    /// Steps between checkpoints; 0 for the end only.
    pub checkpoint_every: u64,
    /// Stop after so many seconds, leaving a resumable checkpoint; 0 for no limit. Runs cut short this way are not
    /// reproducible in length.
    pub time_budget: f64,
    /// Seed of the weights and of the order of the batches.
    pub seed: u64,
}

/// `[runtime]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Storage: `f64`, `f32`, `bf16` or `f16`.
    pub dtype: String,
    /// Arithmetic of matrix products: `exact` or `tf32`.
    pub compute: String,
    /// Threads of the CPU backend; 0 for all cores. Results do not depend on it.
    pub threads: usize,
}

/// A few minutes on two cores.
const DEFAULT_STEPS: u64 = 4000;

fn default_warmup(steps: u64) -> u64 {
    steps / 40
}

/// Long, because a short run gains most while the learning rate falls.
fn default_decay(steps: u64) -> u64 {
    steps - steps / 8 * 3
}

impl Default for Data {
    fn default() -> Self {
        Self {
            source: "simulate".to_owned(),
            suffix: String::new(),
            seed: 0,
            train: 3000,
            valid: 2000,
            test: 2000,
            particles: PARTICLES,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self { hidden: 28, layers: 3 }
    }
}

impl Default for Train {
    fn default() -> Self {
        Self {
            steps: DEFAULT_STEPS,
            batch_size: 100,
            accumulation: 1,
            optimizer: "adam".to_owned(),
            lr: 4e-3,
            weight_decay: 1e-4,
            momentum: 0.0,
            schedule: "cosine".to_owned(),
            warmup_steps: default_warmup(DEFAULT_STEPS),
            decay_steps: default_decay(DEFAULT_STEPS),
            final_lr: 1e-7,
            clip_norm: 0.0,
            capture: true,
            ema: 0.0,
            log_every: 25,
            eval_every: 250,
            checkpoint_every: 250,
            time_budget: 0.0,
            seed: 0,
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self { device: "cpu".to_owned(), dtype: "f32".to_owned(), compute: "exact".to_owned(), threads: 0 }
    }
}

impl NBody {
    /// The settings that layers leave, the lengths of the schedule following `train.steps` unless they are set, checked.
    ///
    /// # Errors
    /// As [`NBody::validate`].
    pub fn resolve(resolver: &Resolver) -> Result<Self, ConfigError> {
        let mut config: Self = resolver.finish()?;
        let train = &mut config.train;
        if !resolver.is_set("train.warmup_steps") {
            train.warmup_steps = default_warmup(train.steps);
        }
        if !resolver.is_set("train.decay_steps") {
            train.decay_steps = default_decay(train.steps);
        }
        config.validate()?;
        Ok(config)
    }

    /// Checks what types alone do not.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |key, actual: String, expected: &str| {
            Err(ConfigError::Value { key, actual, expected: expected.to_owned() })
        };
        for (key, value) in [
            ("data.train", self.data.train),
            ("data.valid", self.data.valid),
            ("data.test", self.data.test),
            ("model.hidden", self.model.hidden),
            ("model.layers", self.model.layers),
            ("train.batch_size", self.train.batch_size),
            ("train.accumulation", self.train.accumulation),
        ] {
            if value == 0 {
                return refuse(key, "0".to_owned(), "at least 1");
            }
        }
        if self.data.particles < 2 {
            return refuse(
                "data.particles",
                self.data.particles.to_string(),
                "at least 2: messages need neighbours",
            );
        }
        if self.train.batch_size > self.data.train {
            let expected = format!("at most data.train = {}", self.data.train);
            return refuse("train.batch_size", self.train.batch_size.to_string(), &expected);
        }
        let t = &self.train;
        for (key, value, accepted, expected) in [
            ("train.lr", t.lr, t.lr > 0.0, "greater than 0"),
            ("train.final_lr", t.final_lr, t.final_lr >= 0.0, "at least 0"),
            ("train.weight_decay", t.weight_decay, t.weight_decay >= 0.0, "at least 0"),
            ("train.momentum", t.momentum, (0.0..1.0).contains(&t.momentum), "at least 0 and less than 1"),
            ("train.clip_norm", t.clip_norm, t.clip_norm >= 0.0, "at least 0 (0 for no limit)"),
            ("train.ema", t.ema, (0.0..1.0).contains(&t.ema), "at least 0 (none) and less than 1"),
            ("train.time_budget", t.time_budget, t.time_budget >= 0.0, "at least 0 seconds (0 for no limit)"),
        ] {
            // Written so that NaN is refused.
            if !(accepted && value.is_finite()) {
                return refuse(key, value.to_string(), expected);
            }
        }
        for (key, value, accepted) in [
            ("train.optimizer", &t.optimizer, &["adam", "adamw", "sgd"][..]),
            ("train.schedule", &t.schedule, &["cosine", "linear", "step", "constant"]),
            ("runtime.compute", &self.runtime.compute, &["exact", "tf32"]),
        ] {
            if !accepted.contains(&value.as_str()) {
                return refuse(key, format!("`{value}`"), &format!("one of {}", accepted.join(", ")));
            }
        }
        if matches!(t.schedule.as_str(), "cosine" | "linear") && t.warmup_steps > t.steps {
            let expected = format!("at most train.steps = {}", t.steps);
            return refuse("train.warmup_steps", t.warmup_steps.to_string(), &expected);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Resolver;

    #[test]
    fn the_defaults_and_the_papers_schedule_are_valid_and_survive_toml() {
        let mut resolver = Resolver::new::<NBody>().unwrap();
        for assignment in std::iter::once("train.seed=1").chain(PAPER_OVERRIDES.split_whitespace()) {
            resolver.assignment(assignment).unwrap();
        }
        let paper: NBody = resolver.finish().unwrap();
        assert_eq!(paper.train.steps, 131_072);
        for config in [NBody::default(), paper] {
            config.validate().unwrap();
            assert_eq!(toml::from_str::<NBody>(&toml::to_string_pretty(&config).unwrap()).unwrap(), config);
        }
    }

    #[test]
    fn the_schedule_follows_the_steps_unless_it_is_set() {
        let resolve = |assignments: &[&str]| {
            let mut resolver = Resolver::new::<NBody>().unwrap();
            for assignment in assignments {
                resolver.assignment(assignment).unwrap();
            }
            NBody::resolve(&resolver).map(|config| (config.train.warmup_steps, config.train.decay_steps))
        };
        assert_eq!(resolve(&[]).unwrap(), (100, 2500));
        assert_eq!(resolve(&["train.steps=60"]).unwrap(), (1, 39));
        assert_eq!(resolve(&["train.steps=1"]).unwrap(), (0, 1));
        assert_eq!(resolve(&["train.warmup_steps=7", "train.steps=60"]).unwrap(), (7, 39));
        assert!(resolve(&["train.warmup_steps=61", "train.steps=60"]).is_err());
    }

    #[test]
    fn senseless_values_are_named() {
        for (assignment, part) in [
            ("train.batch_size=0", "at least 1"),
            ("train.batch_size=3001", "data.train = 3000"),
            ("train.lr=nan", "greater than 0"),
            ("train.lr=-1", "greater than 0"),
            ("train.ema=1.0", "less than 1"),
            ("train.optimizer=lion", "adam, adamw, sgd"),
            ("runtime.compute=fast", "exact, tf32"),
            ("data.particles=1", "neighbours"),
            ("train.warmup_steps=5000", "train.steps"),
        ] {
            let config: NBody =
                Resolver::new::<NBody>().unwrap().assignment(assignment).unwrap().finish().unwrap();
            let message = config.validate().unwrap_err().to_string();
            let key = assignment.split('=').next().unwrap();
            assert!(message.contains(part) && message.contains(key), "{message}");
        }
    }
}
