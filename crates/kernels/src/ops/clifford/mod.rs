//! Operators on Clifford-algebra features `[blades, batch, features]`.

pub(crate) mod algebra;
pub(crate) mod block;
pub(crate) mod linear;
pub(crate) mod pointwise;
pub(crate) mod product;
pub(crate) mod transformer;

pub use block::{clifford_layer, mv_block, steerable_layer};
pub use linear::mv_linear;
pub use pointwise::{cs_layer_norm, cs_mv_gelu, mv_layer_norm, mv_normalization, mv_silu};
pub use product::{fcgp, sgp, steerable_gp, table_product, traceless_product};
pub use transformer::{Activation, Order, channel_norm, equi_linear, heads, joint_norm, product_gate};
