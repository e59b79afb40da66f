//! A table of vectors.

use crate::{Module, Parameter, Placement, Result, Visitor};
use gradewise_autograd::Tensor;
use gradewise_core::Shape;
use gradewise_kernels::Index;

/// A vector of features for each of some entries, looked up by number.
///
/// Parameter: `weight` `[entries, features]`.
#[derive(Debug)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// Normal samples of this standard deviation.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (entries, features): (usize, usize),
        deviation: f64,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self { weight: placement.into().normal([entries, features], deviation, rng)? })
    }

    /// The vectors that `ids` names, as `[…shape, features]`.
    ///
    /// # Errors
    /// A bound of `ids` other than the number of entries, a shape that they do not fill, another device.
    pub fn forward(&self, ids: &Index, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(self.weight.tensor().embedding(ids, shape)?)
    }

    /// The table `[entries, features]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}

impl Module for Embedding {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
    }
}
