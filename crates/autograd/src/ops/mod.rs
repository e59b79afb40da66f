//! Differentiable operations, one file per family. Rules are written on tensors, so they differentiate again.

mod arithmetic;
mod cast;
mod join;
mod layer_norm;
mod mask;
mod matmul;
mod reduce;
mod select;
mod softmax;
mod unary;
mod views;

pub use join::{concat, stack};
