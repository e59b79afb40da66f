//! What every file of operations on multivectors uses.

pub(super) use super::cost;
pub(super) use crate::{
    BackwardContext, Cost, Derivative, Error, Forward, Input, Operation, Result, Rule, Sample, Sizes, Tensor,
    attributes, operation::constants,
};
pub(super) use gradewise_core::Algebra;
pub(super) use gradewise_kernels::{Array, Device};
pub(super) use serde::{Deserialize, Serialize};

/// The error of another number of inputs than `O` takes.
pub(super) fn miscounted<O: Operation>(inputs: usize) -> Error {
    let (fewest, most) = O::ARITY;
    let message = format!("{inputs} inputs were given, expected {fewest} or {most}");
    Error::Argument { operation: O::NAME, message }
}

/// Input shapes of samples.
pub(super) fn features(sizes: &Sizes) -> Input {
    Input::normal(sizes.multivectors())
}

/// A parameter `[features, grades]`.
pub(super) fn by_grade(sizes: &Sizes) -> Input {
    Input::normal([sizes.features, sizes.algebra.grade_count()])
}

/// Product weights `[features, paths]`.
pub(super) fn path_weights(sizes: &Sizes) -> Input {
    Input::normal([sizes.features, sizes.algebra.paths().len()])
}

/// Matrices `[grades, inputs, outputs]` of a grade-wise map.
pub(super) fn matrices(sizes: &Sizes, inputs: usize, outputs: usize) -> Input {
    Input::normal([sizes.algebra.grade_count(), inputs, outputs])
}
