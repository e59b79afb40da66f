//! Normalisations of multivectors.

use super::{
    of_algebra,
    primitives::{by_column, grade_index, quadratic, quadratic_by_grade, smooth_norm},
};
use crate::{Attributes, BackwardContext, Function, Result, Tensor};
use gradewise_core::Algebra;
use gradewise_kernels::{
    Array,
    ops::clifford::{mv_layer_norm as layer_kernel, mv_normalization as grade_kernel},
};

/// x⁽ᵏ⁾ / (σ(a_k)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6) with the smooth norm ‖x‖ = (q² + 1e-16)^¼; `x` is `[blades, batch, features]`,
/// `a` `[features, grades]` (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_normalization(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    Tensor::apply(MvNormalization { algebra: algebra.clone() }, &[x, a])
}

/// a·x / (mean over features of ‖x‖ + 1e-6), with the smooth norm of the whole multivector; `x` is
/// `[blades, batch, features]`, `a` `[features]` (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_layer_norm(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    Tensor::apply(MvLayerNorm { algebra: algebra.clone() }, &[x, a])
}

struct MvNormalization {
    algebra: Algebra,
}

/// The divisors by grade, selected for each blade.
pub(super) fn normalize_by_grade(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let grades = grade_index(algebra, &x.device())?;
    let norms = smooth_norm(&quadratic_by_grade(algebra, x)?)?;
    let divisors = norms.add_scalar(-1.0)?.mul(&by_column(a)?.sigmoid()?)?.add_scalar(1.0 + 1e-6)?;
    x.div(&divisors.index_select(0, &grades)?)
}

impl Function for MvNormalization {
    fn name(&self) -> &'static str {
        "mv_normalization"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((grade_kernel::forward(&self.algebra, &inputs[0], &inputs[1])?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let gradients = grade_kernel::backward(&self.algebra, &inputs[0], &inputs[1], grad)?;
        Ok(vec![Some(gradients.x), Some(gradients.a)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        normalize_by_grade(&self.algebra, &inputs[0], &inputs[1])
    }
}

struct MvLayerNorm {
    algebra: Algebra,
}

impl Function for MvLayerNorm {
    fn name(&self) -> &'static str {
        "mv_layer_norm"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((layer_kernel::forward(&self.algebra, &inputs[0], &inputs[1])?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let gradients = layer_kernel::backward(&self.algebra, &inputs[0], &inputs[1], grad)?;
        Ok(vec![Some(gradients.x), Some(gradients.a)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let [x, a] = inputs else { unreachable!("mv_layer_norm is applied to two inputs") };
        let norms = smooth_norm(&quadratic(&self.algebra, x)?)?;
        x.mul(a)?.div(&norms.mean(&[2], true)?.add_scalar(1e-6)?)
    }
}
