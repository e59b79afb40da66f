//! Linear maps, products and norms in one operator.

pub mod clifford_layer;
pub mod mv_block;
mod operands;
mod simt;
pub mod steerable_layer;
