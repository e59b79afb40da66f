//! Operators that compute each element from the elements at its place.

mod add_n;
mod binary;
pub(crate) mod dropout;
mod select;
mod unary;

pub use add_n::{ADD_N_AT_ONCE, add_n, add_n_assign};
pub use binary::{
    add, add_assign, div, equal, greater, greater_equal, less, less_equal, max, min, mul, not_equal, sub,
};
pub use dropout::{RandomStream, dropout_mask};
pub use select::select;
pub use unary::{
    abs, add_scalar, clamp, cos, erf, exp, gelu, gelu_derivative, log, mul_scalar, neg, not_finite,
    pow_scalar, recip, relu, rsqrt, sigmoid, sign, silu, silu_derivative, sin, sqrt, square, tanh,
};
