//! Layers. Each is configured by a builder, whose `init` draws the parameters on a device.
//!
//! Features of a Clifford algebra are `[blades, batch, features]`; ordinary layers take `[…, features]`.

mod attention;
mod clifford_layer;
mod dense;
mod embedding;
mod learned_metric;
mod mv_block;
mod mv_linear;
mod mv_norm;
mod mv_silu;
mod regular;
mod sequential;
mod steerable;
mod traceless;

pub use attention::{SelfAttention, SelfAttentionBuilder};
pub use clifford_layer::{CliffordLayer, CliffordLayerBuilder};
pub use dense::{Linear, LinearBuilder};
pub use embedding::{Embedding, EmbeddingBuilder};
pub use learned_metric::MetricProduct;
pub use mv_block::{MvBlock, MvBlockBuilder};
pub use mv_linear::{Bias, MvLinear, MvLinearBuilder};
pub use mv_norm::{MvLayerNorm, MvLayerNormBuilder, MvNormalization, MvNormalizationBuilder};
pub use mv_silu::{MvSilu, MvSiluBuilder};
pub use regular::{Dropout, LayerNorm, LayerNormBuilder, RmsNorm, RmsNormBuilder};
pub use sequential::{Activation, DynLayer, Sequential};
pub use steerable::{SteerableProduct, SteerableProductBuilder};
pub use traceless::{TracelessProduct, TracelessProductBuilder, symmetric_traceless};

use crate::{Module, Result};
use gradewise_autograd::Tensor;

/// A module that maps one tensor to one tensor.
///
/// Layers that act only in training query the mode of the current pass ([`is_training`](gradewise_autograd::is_training)). It is evaluation
/// unless the caller is within [`training`](gradewise_autograd::training), as in a step of a [`Trainer`](crate::train::Trainer).
pub trait Layer: Module + Send + Sync {
    /// The layer's output for `x`.
    ///
    /// # Errors
    /// Those of the layer's operators, which name the shapes, dtypes or devices that do not match.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}
