//! Normalisation of rows: layer norm, RMS norm, softmax.

pub mod layer_norm;
pub(crate) mod softmax;

pub use softmax::{log_softmax, softmax};
