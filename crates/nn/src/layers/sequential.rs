//! Composition of layers.

use super::Layer;
use crate::{Module, Result, Visitor};
use gradewise_autograd::Tensor;

/// Applies layers in order. Their parameters are named by position: `0.weight`, `1.a`, …
#[derive(Default)]
pub struct Sequential(Vec<Box<dyn Layer>>);

impl Sequential {
    /// No layers: the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `layer`.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.0.push(Box::new(layer));
        self
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, layer) in self.0.iter().enumerate() {
            visitor.module(index, layer.as_ref());
        }
    }
}

impl Layer for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }
}

/// An elementwise function as a layer. On multivectors it is not equivariant: use [`MvSilu`](super::MvSilu) there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x·Φ(x).
    Gelu,
    /// x·σ(x).
    Silu,
    /// max(x, 0).
    Relu,
    /// tanh x.
    Tanh,
    /// σ(x).
    Sigmoid,
}

impl Module for Activation {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl Layer for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Gelu => x.gelu(),
            Self::Silu => x.silu(),
            Self::Relu => x.relu(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => x.sigmoid(),
        }?)
    }
}
