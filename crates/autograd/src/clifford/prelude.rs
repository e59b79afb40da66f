//! What every file of operations on multivectors uses.

pub(super) use super::cost;
pub(super) use crate::{
    Axis, BackwardContext, Cost, Derivative, Error, Forward, Input, Operand, Operation, Result, Rule, Sample,
    SavedArray, Sizes, Tensor, attributes,
    operation::{self, constants},
};
pub(super) use gradewise_core::Algebra;
pub(super) use gradewise_kernels::{Array, Device};
pub(super) use serde::{Deserialize, Serialize};

/// The error of another number of inputs than `O` takes.
pub(super) fn miscounted<O: Operation>(inputs: usize) -> Error {
    operation::miscounted(O::NAME, O::OPERANDS, inputs)
}

/// The factors that normalised each row of a product, by grade.
pub(super) const INVERSE_RMS: SavedArray =
    SavedArray { name: "inverse_rms", is_wide: true, needs_kernels: false };

/// The axes of a number for each grade and row.
pub(super) fn by_grade_and_row(algebra: &Algebra) -> Vec<Axis> {
    vec![Axis::Size(algebra.grade_count()), Axis::Of { operand: 0, axis: 1 }]
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
