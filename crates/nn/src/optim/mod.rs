//! Optimisers, learning-rate schedules, and what happens to gradients and weights around a step.

mod average;
mod clip;
mod optimizer;
mod report;
mod schedule;

pub use average::MovingAverage;
pub use clip::{GradientNorms, clip_by_norm, clip_by_value};
pub use optimizer::{Method, Optimizer};
pub use report::{GradientReport, GradientState};
pub use schedule::Schedule;
