//! The operators, one module each.
//!
//! Elementwise operators broadcast by NumPy's rule. Operands must have one dtype and one device. Results are new and
//! contiguous unless an operator says otherwise.

mod binary;
pub(crate) mod cast;
pub mod clifford;
mod concat;
pub(crate) mod copy;
mod dropout;
pub(crate) mod fill;
mod indexing;
pub mod layer_norm;
mod matmul;
pub mod optim;
mod pad;
mod reduce;
mod rows;
mod select;
mod softmax;
mod split;
pub(crate) mod statistics;
mod unary;

pub use binary::{
    add, add_assign, div, equal, greater, greater_equal, less, less_equal, max, min, mul, not_equal, sub,
};
pub use concat::{concat, stack};
pub use dropout::dropout_mask;
pub use indexing::{index_select, segment_sum};
pub use layer_norm::{layer_norm, layer_norm_backward};
pub use matmul::matmul;
pub use pad::pad;
pub use reduce::{max_over, mean, min_over, sum, sum_to};
pub use select::select;
pub use softmax::{log_softmax, softmax};
pub use unary::{
    abs, add_scalar, clamp, cos, erf, exp, gelu, log, mul_scalar, neg, not_finite, pow_scalar, recip, relu,
    rsqrt, sigmoid, sign, silu, sin, sqrt, square, tanh,
};
