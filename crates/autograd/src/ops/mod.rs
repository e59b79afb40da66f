//! Differentiable operations, one file per family. Rules are written on tensors, so they differentiate again.

mod arithmetic;
pub(crate) mod attention;
mod cast;
mod cross_entropy;
mod edges;
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
mod squared_error;
mod unary;
mod views;

pub use arithmetic::add_n;
pub use join::{concat, stack};

use crate::Result;
use gradewise_kernels::{Array, Device};

/// Refuses something that an operation reads besides its inputs and that is not where they are. A reference on the host takes it
/// along; nothing else moves it.
pub(crate) fn require_beside(
    operation: &'static str,
    argument: &'static str,
    actual: &Device,
    input: &Array,
) -> Result<()> {
    Ok(input.require_beside(actual, operation, argument)?)
}

/// `array` where `input` is and in its dtype.
pub(crate) fn beside(array: &Array, input: &Array) -> Result<Array> {
    Ok(array.to_device(&input.device())?.cast(input.dtype())?)
}
