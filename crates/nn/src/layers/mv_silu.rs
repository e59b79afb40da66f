//! The multivector SiLU.

use super::Layer;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Signature};

/// Gates each grade by a sigmoid of its invariant: the scalar part for grade 0, the quadratic form for the others (Ruhe
/// et al. 2023, arXiv:2305.11141).
///
/// Parameters: `a` and `b` `[features, grades]`, one and zero.
#[derive(Debug, Module, DeepClone)]
pub struct MvSilu {
    #[module(skip)]
    algebra: Algebra,
    a: Parameter,
    b: Parameter,
}

/// Settings of an [`MvSilu`] for `features` over the algebra of `signature`.
#[derive(Clone, Copy, Debug, Builder)]
pub struct MvSiluBuilder {
    features: usize,
    signature: Signature,
}

impl MvSilu {
    /// Slopes and shifts of the gates' arguments.
    pub fn parameters(&self) -> (&Parameter, &Parameter) {
        (&self.a, &self.b)
    }
}

impl MvSiluBuilder {
    /// Makes the parameters.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<MvSilu> {
        at_least_one("MvSilu", &[("features", self.features)])?;
        let (placement, algebra) = (placement.into(), Algebra::new(self.signature)?);
        let shape = [self.features, algebra.grade_count()];
        Ok(MvSilu { a: placement.filled(shape, 1.0)?, b: placement.filled(shape, 0.0)?, algebra })
    }
}

impl Layer for MvSilu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvSilu::forward", x, || {
            Ok(clifford::mv_silu(&self.algebra, x, &self.a.tensor(), &self.b.tensor())?)
        })
    }
}
