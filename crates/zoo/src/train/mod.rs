//! Losses, predictions and errors of the published experiments.

pub mod fields;
mod gravity;
pub mod nbody;
