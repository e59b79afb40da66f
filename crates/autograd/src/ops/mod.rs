//! Differentiable operations, one file per family. Rules are written on tensors, so they differentiate again.

mod arithmetic;
mod attention;
mod cast;
mod cross_entropy;
mod join;
mod layer_norm;
mod mask;
mod matmul;
mod order;
mod reduce;
mod rms_norm;
mod rotary;
mod select;
mod softmax;
mod unary;
mod views;

pub use join::{concat, stack};
