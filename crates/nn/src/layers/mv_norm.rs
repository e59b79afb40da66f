//! Normalisations of multivectors.

use super::Layer;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Signature};

/// Divides each grade by a learned interpolation between 1 and its norm (Ruhe et al. 2023, arXiv:2305.11141).
///
/// Parameter: `a` `[features, grades]`, zero.
#[derive(Debug, Module, DeepClone)]
pub struct MvNormalization {
    #[module(skip)]
    algebra: Algebra,
    a: Parameter,
}

/// Settings of an [`MvNormalization`] for `features` over the algebra of `signature`.
#[derive(Clone, Copy, Debug, Builder)]
pub struct MvNormalizationBuilder {
    features: usize,
    signature: Signature,
}

impl MvNormalization {
    /// The interpolation parameter.
    pub fn a(&self) -> &Parameter {
        &self.a
    }
}

impl MvNormalizationBuilder {
    /// Makes the parameter.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<MvNormalization> {
        at_least_one("MvNormalization", &[("features", self.features)])?;
        let algebra = Algebra::new(self.signature)?;
        let a = placement.into().filled([self.features, algebra.grade_count()], 0.0)?;
        Ok(MvNormalization { algebra, a })
    }
}

impl Layer for MvNormalization {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvNormalization::forward", x, || {
            Ok(clifford::mv_normalization(&self.algebra, x, &self.a.tensor())?)
        })
    }
}

/// Divides by the mean norm over features, with a learned gain (Ruhe et al. 2023, arXiv:2305.11141).
///
/// Parameter: `a` `[features]`, one.
#[derive(Debug, Module, DeepClone)]
pub struct MvLayerNorm {
    #[module(skip)]
    algebra: Algebra,
    a: Parameter,
}

/// Settings of an [`MvLayerNorm`] for `features` over the algebra of `signature`.
#[derive(Clone, Copy, Debug, Builder)]
pub struct MvLayerNormBuilder {
    features: usize,
    signature: Signature,
}

impl MvLayerNorm {
    /// The gain.
    pub fn a(&self) -> &Parameter {
        &self.a
    }
}

impl MvLayerNormBuilder {
    /// Makes the parameter.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<MvLayerNorm> {
        at_least_one("MvLayerNorm", &[("features", self.features)])?;
        let algebra = Algebra::new(self.signature)?;
        let a = placement.into().filled([self.features], 1.0)?;
        Ok(MvLayerNorm { algebra, a })
    }
}

impl Layer for MvLayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvLayerNorm::forward", x, || {
            Ok(clifford::mv_layer_norm(&self.algebra, x, &self.a.tensor())?)
        })
    }
}
