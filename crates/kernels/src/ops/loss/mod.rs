//! Losses, each with its gradient.

mod cross_entropy;
mod squared_error;

pub use cross_entropy::{CrossEntropy, CrossEntropyOptions, cross_entropy, cross_entropy_backward};
pub use squared_error::{mean_squared_error, mean_squared_error_backward};
