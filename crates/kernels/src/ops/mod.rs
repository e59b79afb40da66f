//! The operators, one module each.
//!
//! Elementwise operators broadcast by NumPy's rule. Operands must have one dtype and one device. Results are new and
//! contiguous unless an operator says otherwise.

pub mod attention;
pub mod clifford;
pub mod fields;
mod graph;
#[cfg(test)]
mod launch_cost;
mod loss;
mod matmul;
mod norm;
pub mod optim;
mod order;
mod pointwise;
mod reduce;
mod shape;

use crate::runtime;

pub use attention::{
    Attention, AttentionOptions, RotaryTable, attention, attention_backward, attention_backward_packed,
    rotary,
};
pub use graph::{
    concat_segment_mean, edge_difference, gather, index_select, neighbours, net_inflow, net_inflow_onto,
    scatter_add, segment_spread, segment_sum,
};
pub use loss::{
    CrossEntropy, CrossEntropyOptions, cross_entropy, cross_entropy_backward, mean_squared_error,
    mean_squared_error_backward,
};
pub use matmul::matmul;
pub use norm::{
    layer_norm, layer_norm::layer_norm, layer_norm::layer_norm_backward, layer_norm::rms_norm,
    layer_norm::rms_norm_backward, log_softmax, softmax,
};
pub use order::{Order, argmax, argmin, sort, top_k};
pub use pointwise::{
    ADD_N_AT_ONCE, RandomStream, abs, add, add_assign, add_n, add_n_assign, add_scalar, clamp, cos, div,
    dropout_mask, equal, erf, exp, gelu, gelu_derivative, greater, greater_equal, less, less_equal, log, max,
    min, mul, mul_scalar, neg, not_equal, not_finite, pow_scalar, recip, relu, rsqrt, select, sigmoid, sign,
    silu, silu_derivative, sin, sqrt, square, sub, tanh,
};
pub use reduce::{Summary, Validation, cumsum, max_over, mean, min_over, sum, sum_to};
pub use shape::{concat, pad, stack};

/// The dynamic shared memory of a block of a kernel where it is the same at every launch: of tiles of matrix products and of convolutions of
/// fields, and of blocks of equivariant networks, all for compute capability 9.0.
#[must_use]
pub fn shared_bytes_of_kernel(kernel: &str) -> Option<usize> {
    let of_tile = runtime::tuning::Tile::shared_bytes_of_kernel(kernel);
    of_tile
        .or_else(|| fields::convolution::shared_bytes_of_kernel(kernel))
        .or_else(|| runtime::cuda::image::launch(kernel).map(|launch| launch.shared))
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_of_tiles_have_dynamic_shared_memory() {
        use super::shared_bytes_of_kernel;
        for kernel in ["gw_matmul_hopper_kk_256_1_f32", "gw_field_hopper_forward_192_f32"] {
            assert!(shared_bytes_of_kernel(kernel).is_some_and(|bytes| bytes > 100_000), "{kernel}");
        }
        assert_eq!(shared_bytes_of_kernel("gw_gate_fwd_f32"), None);
    }
}
