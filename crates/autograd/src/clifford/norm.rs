//! Normalisations of multivectors.

use super::{
    prelude::*,
    primitives::{EPSILON, by_column, grade_index, quadratic, quadratic_by_grade, smooth_norm},
};
use gradewise_kernels::ops::clifford::{
    mv_layer_norm as layer_kernel,
    mv_normalization::{self as grade_kernel, Norm},
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

/// The divisors by grade, selected for each blade.
pub(super) fn normalize_by_grade(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let grades = grade_index(algebra, &x.device())?;
    let norms = smooth_norm(&quadratic_by_grade(algebra, x)?)?;
    let divisors = norms.add_scalar(-1.0)?.mul(&by_column(a)?.sigmoid()?)?.add_scalar(1.0 + EPSILON)?;
    x.div(&divisors.index_select(0, &grades)?)
}

/// Inputs: x and a.
#[derive(Serialize, Deserialize)]
pub(crate) struct MvNormalization {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for MvNormalization {
    const NAME: &'static str = "mv_normalization";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::rows("x"), Operand::parameter("a")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = MvNormalization { algebra: sizes.algebra.clone() };
        Ok(vec![Sample::new(operation, [features(sizes), by_grade(sizes)])])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::all_of(0).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(grade_kernel::forward(Norm::Smooth, &self.algebra, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let gradients =
            grade_kernel::backward(Norm::Smooth, &self.algebra, &inputs[0], &inputs[1], grad.array())?;
        Ok(constants([Some(gradients.x), Some(gradients.a)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        normalize_by_grade(&self.algebra, &inputs[0], &inputs[1])
    }
}

/// Inputs: x and a.
#[derive(Serialize, Deserialize)]
pub(crate) struct MvLayerNorm {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for MvLayerNorm {
    const NAME: &'static str = "mv_layer_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::rows("x"), Operand::parameter("gain")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = MvLayerNorm { algebra: sizes.algebra.clone() };
        Ok(vec![Sample::new(operation, [features(sizes), Input::normal([sizes.features])])])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::all_of(0).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(layer_kernel::forward(&self.algebra, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let gradients = layer_kernel::backward(&self.algebra, &inputs[0], &inputs[1], grad.array())?;
        Ok(constants([Some(gradients.x), Some(gradients.a)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, a) = (&inputs[0], &inputs[1]);
        let norms = smooth_norm(&quadratic(&self.algebra, x)?)?;
        x.mul(a)?.div(&norms.mean(&[2], true)?.add_scalar(EPSILON)?)
    }
}
