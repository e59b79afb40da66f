//! Differentiable operations, one file per family. Rules are written on tensors, so they differentiate again.

mod arithmetic;
mod attention;
mod cross_entropy;
mod edges;
mod join;
mod layer_norm;
mod mask;
mod matmul;
mod order;
mod prelude;
mod reduce;
mod rms_norm;
mod rotary;
mod select;
mod softmax;
mod squared_error;
mod unary;
mod views;

pub use arithmetic::add_n;
pub use join::{concat, stack};

use crate::entry::Entry;

/// The operations of this folder.
pub(crate) static OPERATIONS: &[Entry] = &[
    Entry::of::<arithmetic::AddN>(),
    Entry::of::<arithmetic::AddScalar>(),
    Entry::of::<arithmetic::Difference>(),
    Entry::of::<arithmetic::Maximum>(),
    Entry::of::<arithmetic::MulScalar>(),
    Entry::of::<arithmetic::Product>(),
    Entry::of::<arithmetic::Quotient>(),
    Entry::of::<arithmetic::Sum>(),
    Entry::of::<attention::Attention>(),
    Entry::of::<cross_entropy::CrossEntropy>(),
    Entry::of::<edges::ConcatSegmentMean>(),
    Entry::of::<edges::EdgeDifference>(),
    Entry::of::<edges::NetInflow>(),
    Entry::of::<edges::SegmentSpread>(),
    Entry::of::<join::Concat>(),
    Entry::of::<layer_norm::LayerNorm>(),
    Entry::of::<mask::Select>(),
    Entry::of::<matmul::Matmul>(),
    Entry::of::<order::Gather>(),
    Entry::of::<order::ScatterAdd>(),
    Entry::of::<order::Sort>(),
    Entry::of::<order::TopK>(),
    Entry::of::<reduce::CumSum>(),
    Entry::of::<reduce::Max>(),
    Entry::of::<reduce::Sum>(),
    Entry::of::<reduce::SumTo>(),
    Entry::of::<rms_norm::RmsNorm>(),
    Entry::of::<rotary::Rotary>(),
    Entry::of::<select::IndexSelect>(),
    Entry::of::<select::SegmentSum>(),
    Entry::of::<softmax::LogSoftmax>(),
    Entry::of::<softmax::Softmax>(),
    Entry::of::<squared_error::MeanSquaredError>(),
    Entry::of::<unary::Abs>(),
    Entry::of::<unary::Clamp>(),
    Entry::of::<unary::Cos>(),
    Entry::of::<unary::Erf>(),
    Entry::of::<unary::Exp>(),
    Entry::of::<unary::Gelu>(),
    Entry::of::<unary::GeluDerivative>(),
    Entry::of::<unary::Log>(),
    Entry::of::<unary::Pow>(),
    Entry::of::<unary::Recip>(),
    Entry::of::<unary::Relu>(),
    Entry::of::<unary::Rsqrt>(),
    Entry::of::<unary::Sigmoid>(),
    Entry::of::<unary::Silu>(),
    Entry::of::<unary::SiluDerivative>(),
    Entry::of::<unary::Sin>(),
    Entry::of::<unary::Sqrt>(),
    Entry::of::<unary::Square>(),
    Entry::of::<unary::Tanh>(),
    Entry::of::<views::BroadcastTo>(),
    Entry::of::<views::Contiguous>(),
    Entry::of::<views::Embed>(),
    Entry::of::<views::Permute>(),
    Entry::of::<views::Reshape>(),
    Entry::of::<views::Slice>(),
    Entry::of::<views::Transpose>(),
];
