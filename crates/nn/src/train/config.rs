//! The settings of a trainer, as they appear in files and on command lines.

use crate::{
    Error, Result, choices,
    optim::{Method, Schedule},
};
use serde::{Deserialize, Serialize};

choices! {
    /// The rule of the optimiser.
    pub enum OptimizerKind {
        /// Adam; weight decay is added to the gradient
        Adam = "adam",
        /// AdamW; weight decay shrinks the weights themselves
        AdamW = "adamw",
        /// Gradient descent with momentum; weight decay is added to the gradient
        Sgd = "sgd",
    }
}

choices! {
    /// The course of the learning rate.
    pub enum ScheduleKind {
        /// Half a cosine up, a plateau, half a cosine down
        Cosine = "cosine",
        /// A line up, a plateau, a line down
        Linear = "linear",
        /// A drop to a tenth after every `decay_steps` steps
        Step = "step",
        /// A line up, then a plateau
        Constant = "constant",
    }
}

/// Whether a [`Trainer`](super::Trainer) records its steps on a GPU as a CUDA graph and replays it, and a
/// [`Predictor`](crate::Predictor) its forward passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Capture {
    /// Never: operator by operator.
    Off,
    /// If the work can be captured. Otherwise, falls back to work operator by operator, with a warning.
    #[default]
    WhenPossible,
    /// Work that cannot be captured is an error.
    Required,
}

/// The settings of a [`Trainer`](super::Trainer). Files and command lines are deserialized directly into these fields.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TrainerConfig {
    /// Optimiser steps of the whole run.
    pub steps: u64,
    /// Batches whose gradients are averaged for one step, at least 1.
    pub accumulation: usize,
    /// The rule of the optimiser.
    pub optimizer: OptimizerKind,
    /// Highest learning rate.
    pub lr: f64,
    /// λ: L2 in the gradient for adam and sgd, decoupled for adamw.
    pub weight_decay: f64,
    /// Momentum of sgd.
    pub momentum: f64,
    /// The course of the learning rate.
    pub schedule: ScheduleKind,
    /// Steps of rising learning rate (all but step); [`FOLLOW_STEPS`](Self::FOLLOW_STEPS), the default, for
    /// [`usual_warmup`](Self::usual_warmup) of `steps`.
    pub warmup_steps: u64,
    /// Steps of falling learning rate at the end (cosine, linear), or between two drops (step);
    /// [`FOLLOW_STEPS`](Self::FOLLOW_STEPS), the default, for [`usual_decay`](Self::usual_decay) of `steps`.
    pub decay_steps: u64,
    /// Learning rate at the end (cosine, linear).
    pub final_lr: f64,
    /// Largest norm of all gradients together, if there is a limit; files have 0 for none.
    #[serde(with = "zero_for_none")]
    pub clip_norm: Option<f64>,
    /// Largest magnitude of each element of the gradients, if there is a limit: a positive number; files have 0 for none. Where
    /// `clip_norm` is given, too, it acts first.
    #[serde(with = "zero_for_none")]
    pub clip_value: Option<f64>,
    /// Decay of an exponential moving average of the weights; evaluation then uses the average. Files have 0 for none.
    #[serde(with = "zero_for_none")]
    pub ema: Option<f64>,
    /// Constants that are not settings.
    #[serde(skip)]
    pub constants: Constants,
}

/// Constants of optimisers and schedules that files do not set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Constants {
    /// Decay rates of the two moments of adam and adamw.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// The factor of the learning rate at each drop (step).
    pub factor: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self { betas: (0.9, 0.999), eps: 1e-8, factor: 0.1 }
    }
}

/// The schedule and the optimiser of Ruhe et al. 2023 (arXiv:2305.11141), over 4,000 steps. With another number of `steps`, warm-up and
/// decay follow it.
///
/// ```
/// use gradewise_nn::train::TrainerConfig;
///
/// let schedule = TrainerConfig { steps: 300, ..TrainerConfig::default() }.schedule();
/// assert_eq!(schedule.lr(100), 4e-3);
/// assert!(schedule.lr(299) < 1e-6);
/// ```
impl Default for TrainerConfig {
    fn default() -> Self {
        Self {
            steps: 4000,
            accumulation: 1,
            optimizer: OptimizerKind::Adam,
            lr: 4e-3,
            weight_decay: 1e-4,
            momentum: 0.0,
            schedule: ScheduleKind::Cosine,
            warmup_steps: Self::FOLLOW_STEPS,
            decay_steps: Self::FOLLOW_STEPS,
            final_lr: 1e-7,
            clip_norm: None,
            clip_value: None,
            ema: None,
            constants: Constants::default(),
        }
    }
}

impl TrainerConfig {
    /// A length of warm-up or decay that follows from the number of steps: the largest number that files hold.
    pub const FOLLOW_STEPS: u64 = i64::MAX as u64;

    /// The configuration with its lengths of warm-up and decay as numbers.
    #[must_use]
    pub fn resolved(mut self) -> Self {
        if self.warmup_steps == Self::FOLLOW_STEPS {
            self.warmup_steps = Self::usual_warmup(self.steps);
        }
        if self.decay_steps == Self::FOLLOW_STEPS {
            self.decay_steps = Self::usual_decay(self.steps);
        }
        self
    }

    /// A configuration with this rule and schedule, one batch per step, no clipping and no average.
    pub fn new(method: Method, schedule: Schedule) -> Self {
        let mut config =
            Self { weight_decay: 0.0, warmup_steps: 0, decay_steps: 0, final_lr: 0.0, ..Self::default() };
        match method {
            Method::Adam { betas, eps, weight_decay } | Method::AdamW { betas, eps, weight_decay } => {
                let coupled = matches!(method, Method::Adam { .. });
                config.optimizer = if coupled { OptimizerKind::Adam } else { OptimizerKind::AdamW };
                config.weight_decay = weight_decay;
                config.constants = Constants { betas, eps, ..config.constants };
            }
            Method::Sgd { momentum, weight_decay } => {
                config.optimizer = OptimizerKind::Sgd;
                (config.momentum, config.weight_decay) = (momentum, weight_decay);
            }
        }
        match schedule {
            Schedule::Constant { lr, warmup } => {
                config.schedule = ScheduleKind::Constant;
                (config.lr, config.warmup_steps) = (lr, warmup);
            }
            Schedule::Cosine { lr, final_lr, warmup, decay, total }
            | Schedule::Linear { lr, final_lr, warmup, decay, total } => {
                let round = matches!(schedule, Schedule::Cosine { .. });
                config.schedule = if round { ScheduleKind::Cosine } else { ScheduleKind::Linear };
                (config.lr, config.final_lr, config.steps) = (lr, final_lr, total);
                (config.warmup_steps, config.decay_steps) = (warmup, decay);
            }
            Schedule::Step { lr, every, factor } => {
                config.schedule = ScheduleKind::Step;
                (config.lr, config.decay_steps, config.constants.factor) = (lr, every, factor);
            }
        }
        config
    }

    /// The default number of warm-up steps for a run of `steps` steps.
    pub const fn usual_warmup(steps: u64) -> u64 {
        steps / 40
    }

    /// The default number of decay steps for a run of `steps` steps: many, because a short run gains most while the learning rate falls.
    pub const fn usual_decay(steps: u64) -> u64 {
        steps - steps / 8 * 3
    }

    /// The optimiser's rule.
    pub fn method(&self) -> Method {
        let Self { weight_decay, momentum, constants: Constants { betas, eps, .. }, .. } = *self;
        match self.optimizer {
            OptimizerKind::Adam => Method::Adam { betas, eps, weight_decay },
            OptimizerKind::AdamW => Method::AdamW { betas, eps, weight_decay },
            OptimizerKind::Sgd => Method::Sgd { momentum, weight_decay },
        }
    }

    /// The learning rate over the steps.
    pub fn schedule(&self) -> Schedule {
        let Self { lr, final_lr, warmup_steps: warmup, decay_steps: decay, steps: total, .. } =
            self.clone().resolved();
        match self.schedule {
            ScheduleKind::Cosine => Schedule::Cosine { lr, final_lr, warmup, decay, total },
            ScheduleKind::Linear => Schedule::Linear { lr, final_lr, warmup, decay, total },
            ScheduleKind::Step => Schedule::Step { lr, every: decay.max(1), factor: self.constants.factor },
            ScheduleKind::Constant => Schedule::Constant { lr, warmup },
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range.
    pub fn validate(&self) -> Result<()> {
        self.schedule().validate()?;
        self.method().validate()?;
        let refuse = |argument, actual: String, expected: &str| {
            Err(Error::Argument { operation: "trainer", argument, actual, expected: expected.to_owned() })
        };
        if self.accumulation == 0 {
            return refuse("accumulation", "0".to_owned(), "at least 1");
        }
        for (argument, limit) in [("clip_norm", self.clip_norm), ("clip_value", self.clip_value)] {
            if let Some(limit) = limit.filter(|limit| limit.is_nan() || *limit <= 0.0) {
                return refuse(argument, limit.to_string(), "greater than 0; none for no limit");
            }
        }
        if let Some(decay) = self.ema.filter(|decay| !(0.0..1.0).contains(decay)) {
            return refuse("ema", decay.to_string(), "at least 0 and less than 1; none for no average");
        }
        Ok(())
    }
}

/// Serializes `None` as 0, because every setting has a value in files.
mod zero_for_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.unwrap_or(0.0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Ok(Some(f64::deserialize(deserializer)?).filter(|value| *value != 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice;

    #[test]
    fn rules_and_schedules_are_what_they_were_made_of() {
        let (lr, final_lr, warmup, decay, total) = (0.1, 0.01, 3, 5, 20);
        for method in [
            Method::Adam { betas: (0.8, 0.9), eps: 1e-3, weight_decay: 0.2 },
            Method::adamw(0.1),
            Method::Sgd { momentum: 0.9, weight_decay: 0.3 },
        ] {
            for schedule in [
                Schedule::Constant { lr, warmup },
                Schedule::Cosine { lr, final_lr, warmup, decay, total },
                Schedule::Linear { lr, final_lr, warmup, decay, total },
                Schedule::Step { lr, every: 7, factor: 0.5 },
            ] {
                let config = TrainerConfig::new(method, schedule);
                assert_eq!((config.method(), config.schedule()), (method, schedule));
            }
        }
    }

    #[test]
    fn every_name_of_a_schedule_is_a_course_of_its_own() {
        let course = |&kind: &ScheduleKind| {
            let schedule =
                TrainerConfig { schedule: kind, steps: 100, ..TrainerConfig::default() }.schedule();
            (0..100).map(|step| schedule.lr(step).to_bits()).collect::<Vec<u64>>()
        };
        let courses: Vec<Vec<u64>> = ScheduleKind::ALL.iter().map(course).collect();
        for (index, one) in courses.iter().enumerate() {
            assert!(courses[..index].iter().all(|other| other != one), "{}", ScheduleKind::ALL[index]);
        }
    }

    #[test]
    fn warm_up_and_decay_follow_the_number_of_steps_unless_they_are_set() {
        for steps in [1, 2, 7, 300, 4000, 100_000] {
            let config = TrainerConfig { steps, ..TrainerConfig::default() };
            config.validate().unwrap();
            let rates: Vec<f64> = (0..steps).map(|step| config.schedule().lr(step)).collect();
            let (last, peak) = (rates[rates.len() - 1], rates.iter().copied().fold(0.0, f64::max));
            if steps > 4 {
                assert!(peak > 0.9 * config.lr && last < 0.2 * peak, "{steps} steps: from {peak} to {last}");
            }
            let resolved = config.clone().resolved();
            assert_eq!(resolved.warmup_steps, TrainerConfig::usual_warmup(steps));
            assert_eq!(resolved.decay_steps, TrainerConfig::usual_decay(steps));
            assert_eq!(resolved.schedule(), config.schedule());
            // What is set stays, the numbers of the default length, too.
            let set =
                TrainerConfig { steps, warmup_steps: 100, decay_steps: 2500, ..TrainerConfig::default() };
            assert_eq!(set.clone().resolved(), set);
        }
        // A decay that is longer than the run still ends with the run.
        let short = TrainerConfig { steps: 300, decay_steps: 2500, ..TrainerConfig::default() }.schedule();
        assert!(short.lr(299) < 0.01 * short.lr(150), "{} {}", short.lr(299), short.lr(150));
    }

    #[test]
    fn senseless_constants_are_refused_before_a_trainer_is_made() {
        let default = TrainerConfig::default;
        for (name, config) in [
            ("lr", TrainerConfig { lr: f64::NAN, ..default() }),
            ("lr", TrainerConfig { lr: f64::INFINITY, ..default() }),
            ("lr", TrainerConfig { lr: -1.0, ..default() }),
            ("weight_decay", TrainerConfig { weight_decay: f64::NAN, ..default() }),
            ("weight_decay", TrainerConfig { weight_decay: -0.1, ..default() }),
            ("momentum", TrainerConfig { momentum: 1.0, optimizer: OptimizerKind::Sgd, ..default() }),
            ("ema", TrainerConfig { ema: Some(1.5), ..default() }),
            ("ema", TrainerConfig { ema: Some(f64::NAN), ..default() }),
            ("clip_norm", TrainerConfig { clip_norm: Some(f64::NAN), ..default() }),
            ("clip_value", TrainerConfig { clip_value: Some(-1.0), ..default() }),
            ("accumulation", TrainerConfig { accumulation: 0, ..default() }),
            (
                "betas",
                TrainerConfig {
                    constants: Constants { betas: (0.9, 1.0), ..Constants::default() },
                    ..default()
                },
            ),
            (
                "eps",
                TrainerConfig { constants: Constants { eps: -1e-8, ..Constants::default() }, ..default() },
            ),
        ] {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(&format!("`{name}")), "{name}: {message}");
        }
    }

    #[test]
    fn files_have_a_number_for_every_setting() {
        let config = TrainerConfig { clip_norm: Some(2.0), ..TrainerConfig::default() };
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("clip_norm = 2.0") && text.contains("ema = 0.0"), "{text}");
        assert_eq!(toml::from_str::<TrainerConfig>(&text).unwrap(), config);
    }
}
