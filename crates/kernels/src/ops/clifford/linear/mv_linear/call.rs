//! A backward pass of the linear map on CUDA, as its callers describe it.

use super::{Bias, Needs};
use crate::Array;

/// The inputs of the backward pass, and the requested gradients.
#[derive(Clone, Copy)]
pub(in crate::ops::clifford) struct Backward<'a> {
    pub x: &'a Array,
    pub w: &'a Array,
    pub bias: Bias,
    /// The gradient of the output, which may be a view.
    pub grad: &'a Array,
    pub needs: Needs,
    /// What the gradient of x `[blades, batch, in]` is added to, in place.
    pub add_to: Option<&'a Array>,
}
