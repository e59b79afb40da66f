//! Training: steps, their checkpoints, their record.

mod config;
mod exchange;
mod metrics;
mod trainer;

pub use crate::data::{Batch, Samples, batches, for_each_batch, overwrite, scaled, to_device};
pub use config::{Capture, Constants, OptimizerKind, ScheduleKind, TrainerConfig};
pub use exchange::{Exchange, Part};
pub use metrics::MetricsLog;
pub use trainer::{CapturedStep, MAX_CONSECUTIVE_SKIPS, StepReport, Trainer};
