//! How far a run has come, by its steps or by what else ends it.

use crate::train::TrainerConfig;

/// The share of a run that is over.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    share: f64,
    /// Whether the length of the warm-up follows from that of the run.
    warmup_follows: bool,
}

impl Pace {
    /// At the start of a run.
    pub fn of(config: &TrainerConfig) -> Self {
        let TrainerConfig { steps, warmup_steps, .. } = *config;
        // Files of settings have the number that follows from that of the steps.
        let usual = [TrainerConfig::FOLLOW_STEPS, TrainerConfig::usual_warmup(steps)];
        Self { share: 0.0, warmup_follows: usual.contains(&warmup_steps) }
    }

    pub fn set(&mut self, share: f64) {
        // NaN counts as 0.
        self.share = share.clamp(0.0, 1.0).max(0.0);
    }

    /// The learning rate of the step after `step` steps.
    pub fn lr(&self, config: &TrainerConfig, step: u64) -> f64 {
        let elapsed = step.max((self.share * config.steps as f64) as u64);
        let warm = if self.warmup_follows { elapsed } else { step };
        config.schedule().lr_of(warm, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::ScheduleKind;

    /// The rates of a run of `seconds` whose steps take 0.1 s by a clock that only they move, from second `from` on.
    fn rates(config: &TrainerConfig, seconds: f64, from: f64) -> Vec<f64> {
        let mut pace = Pace::of(config);
        let config = config.clone().resolved();
        let first = (from / 0.1).round() as u64;
        let steps = first..(seconds / 0.1).round() as u64;
        steps
            .map(|step| {
                pace.set(step as f64 * 0.1 / seconds);
                pace.lr(&config, step)
            })
            .collect()
    }

    #[test]
    fn a_run_of_a_given_time_has_the_whole_schedule() {
        let config = TrainerConfig { steps: 1_000_000, lr: 1e-3, ..TrainerConfig::default() };
        let found = rates(&config, 100.0, 0.0);
        // By its steps alone, the rate of step 1,000 would be that of the first thousandth of the run.
        assert!(config.schedule().lr(999) < 5e-6);
        let top = found.iter().copied().fold(0.0, f64::max);
        assert!(found[0] < 1e-7 && top == 1e-3 && found[999] < 2e-7, "{} {top} {}", found[0], found[999]);
        // As a run of a thousand steps has it, but for one step of the warm-up.
        let known = TrainerConfig { steps: 1000, ..config.clone() }.schedule();
        for (step, rate) in found.iter().enumerate() {
            assert!((rate - known.lr(step as u64)).abs() < 7e-5, "step {step}: {rate}");
        }
        // Resumed after 40 s, it goes on where it was, also from a file, which has the lengths as numbers.
        assert_eq!(rates(&config.resolved(), 100.0, 40.0), found[400..]);
    }

    #[test]
    fn steps_decide_where_they_end_first() {
        let config = TrainerConfig { steps: 200, ..TrainerConfig::default() };
        let found = rates(&config, 100.0, 0.0);
        let known: Vec<f64> = (0..200).map(|step| config.schedule().lr(step)).collect();
        assert_eq!(found[..200], known);
    }

    #[test]
    fn a_warmup_of_given_steps_counts_steps() {
        let config =
            TrainerConfig { steps: 1_000_000, lr: 1.0, warmup_steps: 50, ..TrainerConfig::default() };
        let linear = TrainerConfig { schedule: ScheduleKind::Linear, ..config };
        let found = rates(&linear, 100.0, 0.0);
        assert!((found[24] - 0.5).abs() < 1e-12 && found[49] == 1.0 && found[999] < 0.01);
        let mut pace = Pace::of(&linear);
        pace.set(f64::NAN);
        assert_eq!(pace.share, 0.0);
    }
}
