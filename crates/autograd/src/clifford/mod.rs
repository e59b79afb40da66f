//! Differentiable operators on Clifford-algebra features `[blades, batch, features]`.
//!
//! Each runs one kernel forward and one backward; second derivatives are those of its re-expression in primitives.

mod block;
mod layer;
mod linear;
mod norm;
mod primitives;
mod product;
mod silu;
mod steerable;
mod steerable_full;

pub use block::{MvBlock, mv_block};
pub use gradewise_kernels::ops::clifford::steerable_layer::pays as steerable_layer_pays;
pub use gradewise_kernels::ops::clifford::{mv_linear::Bias, sgp::ProductOptions};
pub use layer::{CliffordLayer, LayerOptions, clifford_layer};
pub use linear::mv_linear;
pub use norm::{mv_layer_norm, mv_normalization};
pub use product::{fcgp, gelu_fcgp_norm, gelu_sgp_norm, geometric_product, sgp};
pub use silu::mv_silu;
pub use steerable::{Steerable, SteerableLayer, steerable_layer, steerable_product};
pub use steerable_full::{FullSteerableLayer, fc_steerable_layer};
