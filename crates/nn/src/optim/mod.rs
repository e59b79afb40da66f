//! Optimisers, learning-rate schedules, gradient clipping and diagnostics, loss scaling, and weight averaging.

mod average;
mod backward_step;
mod clip;
mod optimizer;
mod report;
mod scaler;
mod schedule;
mod watch;

pub use average::MovingAverage;
pub(crate) use backward_step::require_loss;
pub use backward_step::{MAX_CONSECUTIVE_SKIPS, Update};
pub(crate) use clip::clip;
pub use clip::{GradientNorms, clip_by_norm, clip_by_value};
pub use optimizer::{Method, Optimizer};
pub use report::{GradientReport, GradientState};
pub use scaler::{GradientScaler, MixedPrecision, ScalerConfig};
pub(crate) use scaler::{ScalerState, UnderflowWatch};
pub use schedule::Schedule;
pub use watch::{Excursion, GradientWatch};
