//! The embedding layer.

use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer},
};
use gradewise_autograd::Tensor;
use gradewise_core::Shape;
use gradewise_kernels::Index;

/// A lookup table with a feature vector for each entry.
///
/// Parameter: `weight` `[entries, features]`.
#[derive(Debug, Module, DeepClone)]
pub struct Embedding {
    weight: Parameter,
}

/// Settings of an [`Embedding`]: `entries` vectors of `features` components.
#[derive(Clone, Copy, Debug, Builder)]
pub struct EmbeddingBuilder {
    entries: usize,
    features: usize,
    /// The standard deviation of the initial vectors' components; 1 by default.
    #[builder(default = 1.0)]
    deviation: f64,
}

impl EmbeddingBuilder {
    /// Draws the table.
    ///
    /// # Errors
    /// A deviation below 0, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Embedding> {
        at_least_one("Embedding", &[("entries", self.entries), ("features", self.features)])?;
        let weight = placement.into().normal([self.entries, self.features], self.deviation, rng)?;
        Ok(Embedding { weight })
    }
}

impl Embedding {
    /// The vectors at `ids`, as `[…shape, features]`.
    ///
    /// # Errors
    /// A bound of `ids` other than the number of entries, a shape with another number of elements than `ids`, another device.
    pub fn forward(&self, ids: &Index, shape: impl Into<Shape>) -> Result<Tensor> {
        in_layer("Embedding::forward", || Ok(self.weight.tensor().embedding(ids, shape)?))
    }

    /// The table `[entries, features]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}
