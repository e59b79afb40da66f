//! Training: steps, their checkpoints, their record.

mod batch;
mod config;
mod device;
mod exchange;
mod metrics;
pub mod nbody;
mod samples;
mod trainer;

pub use batch::{Batch, overwrite, scaled, to_device};
pub use config::{Capture, Constants, OptimizerKind, ScheduleKind, TrainerConfig};
pub use device::CapturedStep;
pub use exchange::{Exchange, Part};
pub use metrics::MetricsLog;
pub use samples::{Samples, batches, for_each_batch};
pub use trainer::{MAX_CONSECUTIVE_SKIPS, StepReport, Trainer};
