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
mod launches;
mod loss;
mod matmul;
mod norm;
pub mod optim;
mod order;
mod pointwise;
mod reduce;
mod shape;

pub use attention::{
    Attention, AttentionOptions, RotaryTable, attention, attention_backward, attention_backward_packed,
    rotary,
};
pub use graph::{
    concat_segment_mean, edge_difference, gather, index_select, net_inflow, net_inflow_onto, scatter_add,
    segment_spread, segment_sum,
};
pub use launches::{shared_bytes_of_kernel, threads_of_kernel};
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
