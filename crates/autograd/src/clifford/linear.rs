//! The grade-wise linear map.

use super::{bias_name, of_algebra, primitives::grade_index};
use crate::{Attributes, BackwardContext, Function, Result, Tensor};
use gradewise_core::Algebra;
use gradewise_kernels::{
    Array,
    ops::clifford::mv_linear::{self as kernel, Bias, Gradients},
};

/// Each blade of `x` `[blades, batch, in]` times the matrix of its grade, `w` `[grades, in, out]`, or one matrix shared
/// by all grades, `w` `[in, out]`; plus a bias `[out]` on the blades that [`Bias`] says.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_linear(algebra: &Algebra, x: &Tensor, w: &Tensor, bias: Option<(&Tensor, Bias)>) -> Result<Tensor> {
    let function = Linear { algebra: algebra.clone(), bias: bias.map(|(_, bias)| bias) };
    match bias {
        Some((bias, _)) => Tensor::apply(function, &[x, w, bias]),
        None => Tensor::apply(function, &[x, w]),
    }
}

struct Linear {
    algebra: Algebra,
    bias: Option<Bias>,
}

impl Function for Linear {
    fn name(&self) -> &'static str {
        "mv_linear"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra).with("bias", bias_name(self.bias))
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let bias = inputs.get(2).zip(self.bias);
        Ok((kernel::forward(&self.algebra, &inputs[0], &inputs[1], bias)?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let inputs = context.inputs();
        let needs = [context.needs(0), context.needs(1), context.needs(2)];
        let bias = self.bias.unwrap_or_default();
        let Gradients { x, w, bias } =
            kernel::backward(&self.algebra, &inputs[0], &inputs[1], bias, grad, needs)?;
        let mut gradients = vec![x, w];
        if self.bias.is_some() {
            gradients.push(bias);
        }
        Ok(gradients)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, w) = (&inputs[0], &inputs[1]);
        let product = if w.shape().rank() == 3 {
            x.matmul(&w.index_select(0, &grade_index(&self.algebra, &x.device())?)?)?
        } else {
            x.matmul(w)?
        };
        match (self.bias, inputs.get(2)) {
            (Some(Bias::AllBlades), Some(bias)) => product.add(bias),
            (Some(Bias::Scalar), Some(bias)) => {
                let mut mask = vec![0.0; self.algebra.blade_count()];
                mask[0] = 1.0;
                let shape = [mask.len(), 1, 1];
                let mask = Array::constant(&mask, shape, x.dtype(), &x.device())?;
                product.add(&bias.mul(&Tensor::new(mask))?)
            }
            _ => Ok(product),
        }
    }
}
