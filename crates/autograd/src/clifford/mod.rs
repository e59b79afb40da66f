//! Differentiable operators on Clifford-algebra features `[blades, batch, features]`.
//!
//! Each runs one kernel forward and one backward; second derivatives are those of its re-expression in primitives.

mod block;
mod cost;
mod coupling;
mod layer;
mod learned_metric;
mod linear;
mod norm;
mod parts;
mod prelude;
mod primitives;
mod product;
mod silu;
mod steerable;
mod steerable_full;
mod steerable_layer;
mod tensors;
mod traceless;
mod transformer;

pub use block::{MvBlock, mv_block};
pub use coupling::traceless_coupling;
pub use gradewise_kernels::ops::clifford::steerable_layer::pays as steerable_layer_pays;
pub use gradewise_kernels::ops::clifford::{mv_linear::Bias, sgp::ProductOptions};
pub use layer::{CliffordLayer, LayerOptions, clifford_layer};
pub use learned_metric::{metric_product, metric_sgp};
pub use linear::mv_linear;
pub use norm::{mv_layer_norm, mv_normalization};
pub(crate) use primitives::smooth_norm;
pub use primitives::table_of;
pub use product::{
    fcgp, gelu_fcgp_norm, gelu_sgp_norm, geometric_product, product_by, regressive_product, sgp,
};
pub use silu::mv_silu;
pub use steerable::{Steerable, steerable_product};
pub use steerable_full::{FullSteerableLayer, fc_steerable_layer};
pub use steerable_layer::{SteerableLayer, steerable_layer};
pub use tensors::{COMPONENTS, tensor_dot, tensor_matrix, tensor_tensor, tensor_vector};
pub use traceless::traceless_product;
pub use transformer::{
    MergeHeads, SplitHeads, channel_norm, equi_linear, joint_norm, merge_heads, product_gate, split_heads,
};

use crate::entry::Entry;

/// The operations of this folder.
pub(crate) static OPERATIONS: &[Entry] = &[
    Entry::of::<block::Block>(),
    Entry::of::<layer::Layer<false>>(),
    Entry::of::<layer::Layer<true>>(),
    Entry::of::<learned_metric::MetricProduct>(),
    Entry::of::<learned_metric::MetricSgp>(),
    Entry::of::<linear::Linear>(),
    Entry::of::<norm::MvLayerNorm>(),
    Entry::of::<norm::MvNormalization>(),
    Entry::of::<primitives::TableProduct>(),
    Entry::of::<product::Weighted<false, false>>(),
    Entry::of::<product::Weighted<false, true>>(),
    Entry::of::<product::Weighted<true, false>>(),
    Entry::of::<product::Weighted<true, true>>(),
    Entry::of::<silu::MvSilu>(),
    Entry::of::<steerable::SteerableProduct>(),
    Entry::of::<steerable_layer::FusedLayer>(),
    Entry::of::<tensors::TensorDot>(),
    Entry::of::<tensors::TensorTensor>(),
    Entry::of::<tensors::TensorVector>(),
    Entry::of::<traceless::TracelessProduct>(),
    Entry::of::<transformer::channel_norm::ChannelNorm>(),
    Entry::of::<transformer::equi_linear::EquiLinear>(),
    Entry::of::<transformer::heads::MergeHeads>(),
    Entry::of::<transformer::heads::SplitHeads>(),
    Entry::of::<transformer::joint_norm::JointNorm>(),
    Entry::of::<transformer::product_gate::ProductGate>(),
];
