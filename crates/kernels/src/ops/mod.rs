//! The operators, one module each.
//!
//! Elementwise operators broadcast by NumPy's rule. Operands must have one dtype and one device. Results are new and
//! contiguous unless an operator says otherwise.

mod add_n;
pub mod attention;
mod binary;
pub mod clifford;
mod concat;
#[cfg(test)]
mod cost;
mod cross_entropy;
mod cumsum;
mod dropout;
mod edges;
pub mod fields;
mod gather;
mod indexing;
pub mod layer_norm;
mod matmul;
pub mod optim;
mod order;
mod pad;
mod reduce;
mod rotary;
mod rows;
mod select;
mod softmax;
mod squared_error;
mod statistics;
mod summary;
mod unary;

pub use add_n::{ADD_N_AT_ONCE, add_n, add_n_assign};
pub use attention::{Attention, AttentionOptions, attention, attention_backward, attention_backward_packed};
pub use binary::{
    add, add_assign, div, equal, greater, greater_equal, less, less_equal, max, min, mul, not_equal, sub,
};
pub use concat::{concat, stack};
pub use cross_entropy::{CrossEntropy, CrossEntropyOptions, cross_entropy, cross_entropy_backward};
pub use cumsum::cumsum;
pub use dropout::{RandomStream, dropout_mask};
pub use edges::{concat_segment_mean, edge_difference, net_inflow, net_inflow_onto, segment_spread};
pub use gather::{gather, scatter_add};
pub use indexing::{index_select, segment_sum};
pub use layer_norm::{layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
pub use matmul::matmul;
pub use order::{Order, argmax, argmin, sort, top_k};
pub use pad::pad;
pub use reduce::{max_over, mean, min_over, sum, sum_to};
pub use rotary::{RotaryTable, rotary};
pub use select::select;
pub use softmax::{log_softmax, softmax};
pub use squared_error::{mean_squared_error, mean_squared_error_backward};
pub use summary::{Summary, Validation};
pub use unary::{
    abs, add_scalar, clamp, cos, erf, exp, gelu, gelu_derivative, log, mul_scalar, neg, not_finite,
    pow_scalar, recip, relu, rsqrt, sigmoid, sign, silu, silu_derivative, sin, sqrt, square, tanh,
};
