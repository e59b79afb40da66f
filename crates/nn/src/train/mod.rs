//! Training: steps, their checkpoints, their record.

mod batch;
mod device;
mod metrics;
pub mod nbody;
mod trainer;

pub use batch::Batch;
pub use device::CapturedStep;
pub use metrics::MetricsLog;
pub use trainer::{MAX_CONSECUTIVE_SKIPS, StepReport, Trainer, TrainerConfig};
