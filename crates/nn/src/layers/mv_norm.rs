//! Normalisations of multivectors.

use super::Layer;
use crate::{Module, Parameter, Placement, Result, Visitor};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Signature};

/// Divides each grade by a learned interpolation between 1 and its norm (Ruhe et al. 2023, arXiv:2305.11141).
///
/// Parameter: `a` `[features, grades]`, zero.
#[derive(Debug)]
pub struct MvNormalization {
    algebra: Algebra,
    a: Parameter,
}

impl MvNormalization {
    /// For `features` over the algebra of `signature`.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(features: usize, signature: Signature, placement: impl Into<Placement>) -> Result<Self> {
        let algebra = Algebra::new(signature)?;
        let a = placement.into().filled([features, algebra.grade_count()], 0.0)?;
        Ok(Self { algebra, a })
    }

    /// The interpolation parameter.
    pub fn a(&self) -> &Parameter {
        &self.a
    }
}

impl Module for MvNormalization {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("a", &self.a);
    }
}

impl Layer for MvNormalization {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(clifford::mv_normalization(&self.algebra, x, &self.a.tensor())?)
    }
}

/// Divides by the mean norm over features, with a learned gain (Ruhe et al. 2023, arXiv:2305.11141).
///
/// Parameter: `a` `[features]`, one.
#[derive(Debug)]
pub struct MvLayerNorm {
    algebra: Algebra,
    a: Parameter,
}

impl MvLayerNorm {
    /// For `features` over the algebra of `signature`.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(features: usize, signature: Signature, placement: impl Into<Placement>) -> Result<Self> {
        Ok(Self { algebra: Algebra::new(signature)?, a: placement.into().filled([features], 1.0)? })
    }

    /// The gain.
    pub fn a(&self) -> &Parameter {
        &self.a
    }
}

impl Module for MvLayerNorm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("a", &self.a);
    }
}

impl Layer for MvLayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(clifford::mv_layer_norm(&self.algebra, x, &self.a.tensor())?)
    }
}
