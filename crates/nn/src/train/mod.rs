//! Training: steps, their checkpoints, their record.

mod metrics;
pub mod nbody;
mod trainer;

pub use metrics::MetricsLog;
pub use trainer::{MAX_CONSECUTIVE_SKIPS, StepReport, Trainer, TrainerConfig};
