//! The result of a backward pass.

use crate::{Error, Result, Tensor, TensorId};
use std::collections::BTreeMap;

/// Gradients by tensor, from one backward pass.
#[derive(Debug, Default)]
pub struct Gradients {
    /// Ordered by id, so that iteration is deterministic.
    gradients: BTreeMap<TensorId, Tensor>,
    /// Every tensor of the graph that gradients flowed through.
    visited: Vec<TensorId>,
}

impl Gradients {
    pub(crate) fn new(gradients: BTreeMap<TensorId, Tensor>, visited: Vec<TensorId>) -> Self {
        Self { gradients, visited }
    }

    /// The gradient of `tensor`, of its shape.
    ///
    /// # Errors
    /// [`Error::NotRequired`], [`Error::Intermediate`] or [`Error::NotInGraph`]: why there is none.
    pub fn get(&self, tensor: &Tensor) -> Result<&Tensor> {
        self.gradients.get(&tensor.id()).ok_or_else(|| self.why_missing(tensor))
    }

    /// Removes and returns the gradient of `tensor`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn take(&mut self, tensor: &Tensor) -> Result<Tensor> {
        self.gradients.remove(&tensor.id()).ok_or_else(|| self.why_missing(tensor))
    }

    /// Whether there is a gradient for `tensor`.
    pub fn contains(&self, tensor: &Tensor) -> bool {
        self.gradients.contains_key(&tensor.id())
    }

    /// Number of gradients.
    pub fn len(&self) -> usize {
        self.gradients.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.gradients.is_empty()
    }

    /// The gradients with the ids of their tensors, in the order the tensors were created.
    pub fn iter(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.gradients.iter().map(|(&id, gradient)| (id, gradient))
    }

    fn why_missing(&self, tensor: &Tensor) -> Error {
        let shape = tensor.shape().clone();
        if !tensor.is_grad_required() {
            return Error::NotRequired { shape };
        }
        match tensor.operation() {
            Some(operation) if self.visited.contains(&tensor.id()) => {
                Error::Intermediate { shape, operation }
            }
            _ => Error::NotInGraph { shape },
        }
    }
}
