//! The multivector SiLU.

use super::{
    prelude::*,
    primitives::{by_column, grade_index, quadratic_by_grade},
};
use crate::concat;
use gradewise_kernels::ops::clifford::mv_silu as kernel;

/// Grade k of `x` `[blades, batch, features]` times σ(a_k·u_k + b_k), where u_0 is the scalar part and u_k = q(x⁽ᵏ⁾)
/// otherwise; `a` and `b` are `[features, grades]` (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_silu(algebra: &Algebra, x: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Tensor::apply(MvSilu { algebra: algebra.clone() }, &[x, a, b])
}

/// Inputs: x, a and b.
#[derive(Serialize, Deserialize)]
pub(crate) struct MvSilu {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for MvSilu {
    const NAME: &'static str = "mv_silu";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::rows("x"), Operand::parameter("a"), Operand::parameter("b")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = MvSilu { algebra: sizes.algebra.clone() };
        Ok(vec![Sample::new(operation, [features(sizes), by_grade(sizes), by_grade(sizes)])])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::all_of(0).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.algebra, &inputs[0], &inputs[1], &inputs[2])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let kernel::Gradients { x, a, b } =
            kernel::backward(&self.algebra, &inputs[0], &inputs[1], &inputs[2], grad.array())?;
        Ok(constants([Some(x), Some(a), Some(b)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, a, b) = (&inputs[0], &inputs[1], &inputs[2]);
        let grades = grade_index(&self.algebra, &x.device())?;
        let quadratic = quadratic_by_grade(&self.algebra, x)?;
        let higher = quadratic.slice(0, 1..self.algebra.grade_count())?;
        let invariants = concat(&[&x.slice(0, 0..1)?, &higher], 0)?;
        let gates = invariants.mul(&by_column(a)?)?.add(&by_column(b)?)?.sigmoid()?;
        x.mul(&gates.index_select(0, &grades)?)
    }
}
