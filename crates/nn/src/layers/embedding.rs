//! The embedding layer.

use crate::{Module, Parameter, Placement, Result};
use gradewise_autograd::Tensor;
use gradewise_core::Shape;
use gradewise_kernels::Index;

/// A lookup table with a feature vector for each entry.
///
/// Parameter: `weight` `[entries, features]`.
#[derive(Debug, Module)]
pub struct Embedding {
    weight: Parameter,
}

/// Settings of an [`Embedding`].
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingBuilder {
    entries: usize,
    features: usize,
    deviation: f64,
}

impl EmbeddingBuilder {
    /// The standard deviation of the initial vectors' components; 1 by default.
    #[must_use]
    pub fn deviation(mut self, deviation: f64) -> Self {
        self.deviation = deviation;
        self
    }

    /// Draws the table.
    ///
    /// # Errors
    /// A deviation below 0, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Embedding> {
        let weight = placement.into().normal([self.entries, self.features], self.deviation, rng)?;
        Ok(Embedding { weight })
    }
}

impl Embedding {
    /// `entries` vectors of `features` components.
    #[expect(clippy::new_ret_no_self, reason = "a layer is built before it has parameters")]
    pub fn new(entries: usize, features: usize) -> EmbeddingBuilder {
        EmbeddingBuilder { entries, features, deviation: 1.0 }
    }

    /// The vectors at `ids`, as `[…shape, features]`.
    ///
    /// # Errors
    /// A bound of `ids` other than the number of entries, a shape with another number of elements than `ids`, another device.
    pub fn forward(&self, ids: &Index, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(self.weight.tensor().embedding(ids, shape)?)
    }

    /// The table `[entries, features]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}
