//! The normalisation by grade of steerable networks.

use super::{prelude::*, steerable};
use crate::{attributes, operation::constants};
use gradewise_core::Algebra;
use gradewise_kernels::ops::clifford::mv_normalization::{self as kernel, Norm};

/// x⁽ᵏ⁾/(σ(a_k)(ν_k − 1) + 1 + 1e-6), where ν_k is the norm of the part of grade k, at least 0.1; `x` is `[blades, points, channels]`, `a`
/// `[channels, grades]` (Zhdanov et al. 2024, arXiv:2402.14730).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub(super) fn grade_norm(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    Tensor::apply(CsGradeNorm { algebra: algebra.clone() }, &[x, a])
}

/// Inputs: x and a.
#[derive(Serialize, Deserialize)]
pub(crate) struct CsGradeNorm {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for CsGradeNorm {
    const NAME: &'static str = "cs_grade_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const ARITY: (usize, usize) = (2, 2);

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = CsGradeNorm { algebra: sizes.algebra.clone() };
        let a = Input::normal([sizes.features, sizes.algebra.grade_count()]);
        Ok(vec![Sample::new(operation, [Input::normal(sizes.multivectors()), a])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(Norm::Clamped, &self.algebra, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let gradients = kernel::backward(Norm::Clamped, &self.algebra, &inputs[0], &inputs[1], grad.array())?;
        Ok(constants([Some(gradients.x), Some(gradients.a)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, a) = (&inputs[0], &inputs[1]);
        let grades: Vec<usize> = self.algebra.grades().iter().map(|&grade| usize::from(grade)).collect();
        steerable::grade_norm(&grades, self.algebra.squared_norms().iter().copied(), x, &a.unsqueeze(0)?)
    }
}
