//! The multivector SiLU.

use super::Layer;
use crate::{Module, Parameter, Placement, Result, Visitor};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Signature};

/// Gates each grade by a sigmoid of its invariant: the scalar part for grade 0, the quadratic form for the others (Ruhe
/// et al. 2023, arXiv:2305.11141).
///
/// Parameters: `a` and `b` `[features, grades]`, one and zero.
#[derive(Debug)]
pub struct MvSilu {
    algebra: Algebra,
    a: Parameter,
    b: Parameter,
}

impl MvSilu {
    /// For `features` over the algebra of `signature`.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init(features: usize, signature: Signature, placement: impl Into<Placement>) -> Result<Self> {
        let (placement, algebra) = (placement.into(), Algebra::new(signature)?);
        let shape = [features, algebra.grade_count()];
        Ok(Self { a: placement.filled(shape, 1.0)?, b: placement.filled(shape, 0.0)?, algebra })
    }

    /// Slopes and shifts of the gates' arguments.
    pub fn parameters(&self) -> (&Parameter, &Parameter) {
        (&self.a, &self.b)
    }
}

impl Module for MvSilu {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("a", &self.a);
        visitor.parameter("b", &self.b);
    }
}

impl Layer for MvSilu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(clifford::mv_silu(&self.algebra, x, &self.a.tensor(), &self.b.tensor())?)
    }
}
