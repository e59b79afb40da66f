//! The tensors that a golden file gives an operator.

use gradewise_autograd::Tensor;
use std::collections::BTreeMap;

/// The inputs of a case, by name.
pub(super) struct Inputs(pub BTreeMap<String, Tensor>);

impl Inputs {
    pub fn get(&self, name: &str) -> Result<&Tensor, String> {
        self.optional(name).ok_or_else(|| format!("the file has no tensor `in.{name}`"))
    }

    pub fn optional(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}
