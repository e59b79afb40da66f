//! Activations and norms of multivectors.

pub(in crate::ops::clifford) mod by_grade;
pub mod cs_layer_norm;
pub mod cs_mv_gelu;
pub mod mv_layer_norm;
pub mod mv_normalization;
pub mod mv_silu;
pub(crate) mod rms_norm;
