//! Composition of layers.

use super::Layer;
use crate::{DeepClone, Module, Result, Visitor};
use gradewise_autograd::Tensor;

/// A layer behind a pointer that can be cloned: any [`Layer`] that is `Clone`.
pub trait DynLayer: Layer {
    /// A copy with parameters of its own.
    fn boxed_clone(&self) -> Box<dyn DynLayer>;
}

impl<L: Layer + Clone + 'static> DynLayer for L {
    fn boxed_clone(&self) -> Box<dyn DynLayer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn DynLayer> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// Applies layers in order. Their parameters are named by position: `0.weight`, `1.a`, …
#[derive(Default, DeepClone)]
pub struct Sequential(Vec<Box<dyn DynLayer>>);

impl Sequential {
    /// No layers: the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `layer`.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + Clone + 'static) -> Self {
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
        self.0.iter().enumerate().try_fold(x.clone(), |x, (index, layer)| {
            layer
                .forward(&x)
                .map_err(|error| error.in_layer(format!("Sequential::forward, layer {index}"), None))
        })
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
