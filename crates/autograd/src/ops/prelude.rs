//! What every file of operations uses.

pub(super) use crate::formula::{At, Formula, Function, Loops, Operator, Scalar};
pub(super) use crate::{
    BackwardContext, Cost, Derivative, Error, Forward, Input, Operand, Operation, Result, Rule, Sample,
    Sizes, Tensor, Traffic, Values, attributes, operation::constants,
};
pub(super) use gradewise_core::{DType, Shape};
pub(super) use gradewise_kernels::{Array, Device, Index, Positions, ops};
pub(super) use serde::{Deserialize, Serialize};

/// Refuses something that an operation reads besides its inputs and that is not where they are. A reference on the host takes it
/// along; nothing else moves it.
pub(super) fn require_beside(
    operation: &'static str,
    argument: &'static str,
    actual: &Device,
    input: &Array,
) -> Result<()> {
    Ok(input.require_beside(actual, operation, argument)?)
}

/// `array` where `input` is and in its dtype.
pub(super) fn beside(array: &Array, input: &Array) -> Result<Array> {
    Ok(array.to_device(&input.device())?.cast(input.dtype())?)
}

/// `[batch, features]`.
pub(super) fn matrix(sizes: &Sizes) -> [usize; 2] {
    [sizes.batch, sizes.features]
}
