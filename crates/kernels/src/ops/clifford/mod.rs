//! Operators on Clifford-algebra features `[blades, batch, features]`.
pub mod clifford_layer;
pub(crate) mod contract;
pub(crate) mod device;
pub mod fcgp;
pub(crate) mod lanewise;
pub(crate) mod layout;
pub mod mv_layer_norm;
pub mod mv_linear;
pub mod mv_normalization;
pub mod mv_silu;
pub(crate) mod program;
pub(crate) mod rms_norm;
pub mod sgp;
pub mod steerable_gp;
pub mod steerable_layer;
pub mod table_product;
pub(crate) mod tile;
