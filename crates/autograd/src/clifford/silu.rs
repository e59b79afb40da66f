//! The multivector SiLU.

use super::{
    of_algebra,
    primitives::{by_column, grade_index, quadratic_by_grade},
};
use crate::{Attributes, BackwardContext, Function, Result, Tensor, concat};
use gradewise_core::Algebra;
use gradewise_kernels::{Array, ops::clifford::mv_silu as kernel};

/// Grade k of `x` `[blades, batch, features]` times σ(a_k·u_k + b_k), where u_0 is the scalar part and u_k = q(x⁽ᵏ⁾)
/// otherwise; `a` and `b` are `[features, grades]` (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_silu(algebra: &Algebra, x: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Tensor::apply(MvSilu { algebra: algebra.clone() }, &[x, a, b])
}

struct MvSilu {
    algebra: Algebra,
}

impl Function for MvSilu {
    fn name(&self) -> &'static str {
        "mv_silu"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((kernel::forward(&self.algebra, &inputs[0], &inputs[1], &inputs[2])?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let kernel::Gradients { x, a, b } =
            kernel::backward(&self.algebra, &inputs[0], &inputs[1], &inputs[2], grad)?;
        Ok(vec![Some(x), Some(a), Some(b)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let [x, a, b] = inputs else { unreachable!("mv_silu is applied to three inputs") };
        let grades = grade_index(&self.algebra, &x.device())?;
        let quadratic = quadratic_by_grade(&self.algebra, x)?;
        let higher = quadratic.slice(0, 1..self.algebra.grade_count())?;
        let invariants = concat(&[&x.slice(0, 0..1)?, &higher], 0)?;
        let gates = invariants.mul(&by_column(a)?)?.add(&by_column(b)?)?.sigmoid()?;
        x.mul(&gates.index_select(0, &grades)?)
    }
}
