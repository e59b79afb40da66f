//! Products of multivectors.

pub mod fcgp;
pub(crate) mod gate_norm;
pub mod sgp;
pub mod steerable_gp;
pub mod table_product;
pub mod traceless_product;
pub(crate) mod weighted;
