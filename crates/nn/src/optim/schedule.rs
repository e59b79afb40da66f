//! Learning rates over the steps of a run.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A learning rate for every step. All schedules but [`Schedule::Step`] begin with a warm-up of `warmup` steps.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The same learning rate throughout, after a linear warm-up.
    Constant {
        /// Learning rate.
        lr: f64,
        /// Steps of warm-up.
        warmup: u64,
    },
    /// Cosine warm-up, a plateau, cosine decay: the schedule of Ruhe et al. 2023.
    Cosine {
        /// Learning rate of the plateau.
        lr: f64,
        /// Learning rate at the end.
        final_lr: f64,
        /// Steps of warm-up.
        warmup: u64,
        /// Steps of decay.
        decay: u64,
        /// Steps of the run; the decay ends with the run.
        total: u64,
    },
    /// Linear warm-up, a plateau, linear decay.
    Linear {
        /// Learning rate of the plateau.
        lr: f64,
        /// Learning rate at the end.
        final_lr: f64,
        /// Steps of warm-up.
        warmup: u64,
        /// Steps of decay.
        decay: u64,
        /// Steps of the run; the decay ends with the run.
        total: u64,
    },
    /// Multiplied by `factor` after every `every` steps.
    Step {
        /// Learning rate at the start.
        lr: f64,
        /// Steps between two changes.
        every: u64,
        /// The factor of each change.
        factor: f64,
    },
}

impl Schedule {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] for learning rates that are negative or not finite, and for steps of length zero.
    pub fn validate(&self) -> Result<()> {
        let refuse = |argument, actual: String, expected: &str| {
            Err(Error::Argument { operation: "schedule", argument, actual, expected: expected.to_owned() })
        };
        let (lr, other) = match *self {
            Self::Constant { lr, .. } => (lr, 0.0),
            Self::Cosine { lr, final_lr, .. } | Self::Linear { lr, final_lr, .. } => (lr, final_lr),
            Self::Step { every: 0, .. } => return refuse("every", "0".to_owned(), "at least 1 step"),
            Self::Step { lr, factor, .. } => (lr, factor),
        };
        for (argument, value) in [("lr", lr), ("final_lr or factor", other)] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(argument, value.to_string(), "finite and at least 0");
            }
        }
        Ok(())
    }

    /// The learning rate of step `step`, counted from 0. The first step of a warm-up already moves the weights, its last
    /// one reaches the plateau; the last step of the run uses nearly the final rate.
    pub fn lr(&self, step: u64) -> f64 {
        self.lr_of(step, step)
    }

    /// As [`lr`](Self::lr), with a warm-up that counts the steps to `step`, and all else as after `elapsed` steps.
    pub fn lr_of(&self, step: u64, elapsed: u64) -> f64 {
        let rise = |warmup: u64| ((step + 1) as f64 / warmup.max(1) as f64).min(1.0);
        let fall = |decay: u64, total: u64| {
            // The decay ends with the run, however short the run is.
            let decay = decay.min(total);
            let start = total.saturating_sub(decay);
            (elapsed.saturating_sub(start) as f64 / decay.max(1) as f64).min(1.0)
        };
        let half_cosine = |fraction: f64| 0.5 * (1.0 - (PI * fraction).cos());
        match *self {
            Self::Constant { lr, warmup } => lr * rise(warmup),
            Self::Cosine { lr, final_lr, warmup, decay, total } => {
                let down = half_cosine(fall(decay, total));
                (final_lr * down + lr * (1.0 - down)) * half_cosine(rise(warmup))
            }
            Self::Linear { lr, final_lr, warmup, decay, total } => {
                let down = fall(decay, total);
                (final_lr * down + lr * (1.0 - down)) * rise(warmup)
            }
            Self::Step { lr, every, factor } => {
                let drops = i32::try_from(elapsed / every.max(1)).unwrap_or(i32::MAX);
                lr * factor.powi(drops)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Schedule =
        Schedule::Cosine { lr: 4e-3, final_lr: 1e-7, warmup: 2048, decay: 32_768, total: 131_072 };

    #[test]
    fn the_papers_schedule_rises_stays_and_falls() {
        let close = |step, expected: f64| {
            let lr = PAPER.lr(step);
            assert!(
                (lr - expected).abs() <= 1e-12 + 1e-6 * expected,
                "step {step}: {lr}, expected {expected}"
            );
        };
        assert!(PAPER.lr(0) > 0.0 && PAPER.lr(0) < 1e-8);
        close(1023, 2e-3); // half way up
        close(2047, 4e-3);
        close(50_000, 4e-3);
        close(131_072 - 32_768, 4e-3);
        close(131_072 - 16_384, (4e-3 + 1e-7) / 2.0); // half way down
        close(131_072, 1e-7);
        close(200_000, 1e-7);
        let rates: Vec<f64> = (0..131_073).step_by(64).map(|step| PAPER.lr(step)).collect();
        let top = rates.iter().position(|&lr| lr >= 4e-3 * (1.0 - 1e-12)).unwrap();
        assert!(rates[..=top].is_sorted() && rates[top..].is_sorted_by(|a, b| a >= &(b * (1.0 - 1e-12))));
    }

    #[test]
    fn the_other_schedules_follow_their_definitions() {
        let linear = Schedule::Linear { lr: 1.0, final_lr: 0.1, warmup: 4, decay: 10, total: 100 };
        assert_eq!((linear.lr(0), linear.lr(1), linear.lr(3), linear.lr(50)), (0.25, 0.5, 1.0, 1.0));
        assert!((linear.lr(95) - 0.55).abs() < 1e-12 && (linear.lr(100) - 0.1).abs() < 1e-12);
        let step = Schedule::Step { lr: 1.0, every: 10, factor: 0.5 };
        assert_eq!((step.lr(9), step.lr(10), step.lr(29)), (1.0, 0.5, 0.25));
        assert_eq!(Schedule::Constant { lr: 0.3, warmup: 0 }.lr(0), 0.3);
        assert_eq!(Schedule::Constant { lr: 0.3, warmup: 2 }.lr(0), 0.15);
    }

    #[test]
    fn senseless_numbers_are_refused() {
        PAPER.validate().unwrap();
        assert!(Schedule::Constant { lr: f64::NAN, warmup: 0 }.validate().is_err());
        assert!(Schedule::Step { lr: 1.0, every: 0, factor: 0.1 }.validate().is_err());
        assert!(
            Schedule::Linear { lr: 1.0, final_lr: -1.0, warmup: 0, decay: 0, total: 1 }.validate().is_err()
        );
    }
}
