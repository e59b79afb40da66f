//! Differentiable operators on Clifford-algebra features `[blades, batch, features]`.
//!
//! Each runs one kernel forward and one backward; second derivatives are those of its re-expression in primitives.

mod block;
mod layer;
mod linear;
mod norm;
pub(crate) mod primitives;
mod product;
mod silu;
mod steerable;
mod steerable_full;

use crate::{Attributes, Error, Result};
use gradewise_core::Algebra;

pub use block::{MvBlock, mv_block};
pub use gradewise_kernels::ops::clifford::steerable_layer::pays as steerable_layer_pays;
pub use gradewise_kernels::ops::clifford::{mv_linear::Bias, sgp::ProductOptions};
pub use layer::{CliffordLayer, LayerOptions, clifford_layer};
pub use linear::mv_linear;
pub use norm::{mv_layer_norm, mv_normalization};
pub use product::{fcgp, gelu_fcgp_norm, gelu_sgp_norm, geometric_product, regressive_product, sgp};
pub use silu::mv_silu;
pub use steerable::{Steerable, SteerableLayer, steerable_layer, steerable_product};
pub use steerable_full::{FullSteerableLayer, fc_steerable_layer};

fn of_algebra(algebra: &Algebra) -> Attributes {
    let signature = algebra.signature();
    Attributes::new().list("signature", [signature.p, signature.q, signature.r])
}

fn bias_name(bias: Option<Bias>) -> &'static str {
    match bias {
        None => "none",
        Some(Bias::Scalar) => "scalar",
        Some(Bias::AllBlades) => "all",
    }
}

/// The bias that [`bias_name`] names.
pub(crate) fn bias_of(operation: &'static str, name: &str) -> Result<Option<Bias>> {
    match name {
        "none" => Ok(None),
        "scalar" => Ok(Some(Bias::Scalar)),
        "all" => Ok(Some(Bias::AllBlades)),
        other => Err(Error::Argument {
            operation,
            message: format!("the attribute `bias` has the value `{other}`"),
        }),
    }
}
