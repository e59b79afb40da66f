//! What a step reports.

use crate::optim::GradientNorms;

/// The report of one step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepReport {
    /// Steps taken so far, this one included.
    pub step: u64,
    /// Mean loss of the step's batches, before the step.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Norms of the gradients, before clipping, in the order of the parameters.
    pub norms: GradientNorms,
    /// Whether the gradients were clipped: by norm, or any element by value.
    pub clipped: bool,
    /// Whether the step was skipped because its loss or gradients were not finite.
    pub skipped: bool,
    /// The fraction of the gradients' elements that are zero.
    pub zeros: f64,
    /// The loss scale of the backward pass, if there is a scaler.
    pub scale: Option<f64>,
}
