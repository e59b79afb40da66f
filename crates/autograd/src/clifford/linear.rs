//! The grade-wise linear map.

use super::{prelude::*, primitives::grade_index};
use crate::{current_policy, without_autocast};
use gradewise_core::DType;
use gradewise_kernels::ops::clifford::mv_linear::{self as kernel, Bias, Gradients, Needs};

/// Each blade of `x` `[blades, batch, in]` times the matrix of its grade, `w` `[grades, in, out]`, or one matrix shared
/// by all grades, `w` `[in, out]`; plus a bias `[out]` on the blades that [`Bias`] says.
///
/// In mixed precision, a map from or to at most 8 features takes these and its parameters in `f32`, and has 16 bits on the other side alone.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_linear(algebra: &Algebra, x: &Tensor, w: &Tensor, bias: Option<(&Tensor, Bias)>) -> Result<Tensor> {
    if let Some(policy) = current_policy()
        && policy.rule_of(Linear::NAME, Linear::RULE) == Rule::Short
        && bias.is_none_or(|(bias, _)| bias.dtype() == w.dtype())
        && let Some([of_x, output]) = kernel::mixed_dtypes(policy.dtype(), algebra, x.array(), w.array())
    {
        let x = x.cast(of_x)?;
        return without_autocast(|| linear(algebra, &x, w, bias, Some(output)));
    }
    linear(algebra, x, w, bias, None)
}

fn linear(
    algebra: &Algebra,
    x: &Tensor,
    w: &Tensor,
    bias: Option<(&Tensor, Bias)>,
    output: Option<DType>,
) -> Result<Tensor> {
    let operation = Linear { algebra: algebra.clone(), bias: bias.map(|(_, bias)| bias), output };
    match bias {
        Some((bias, _)) => Tensor::apply(operation, &[x, w, bias]),
        None => Tensor::apply(operation, &[x, w]),
    }
}

/// Inputs: x, the matrices, and the bias if there is one.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Linear {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    #[serde(with = "attributes::bias")]
    bias: Option<Bias>,
    /// The dtype of the output, where it is not that of x.
    #[serde(default, with = "attributes::optional_dtype", skip_serializing_if = "Option::is_none")]
    output: Option<DType>,
}

impl Operation for Linear {
    const NAME: &'static str = "mv_linear";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::rows("x"), Operand::parameter("weight"), Operand::parameter("bias").optional()];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let (inputs, outputs) = (sizes.features, sizes.features + 2);
        let sample = |bias: Option<Bias>, matrices| {
            let mut operands = vec![features(sizes), matrices];
            operands.extend(bias.map(|_| Input::normal([outputs])));
            Sample::new(Linear { algebra: sizes.algebra.clone(), bias, output: None }, operands)
        };
        let by_grade = || matrices(sizes, inputs, outputs);
        Ok(vec![
            sample(None, by_grade()),
            sample(None, Input::normal([inputs, outputs])),
            sample(Some(Bias::Scalar), by_grade()),
            sample(Some(Bias::AllBlades), by_grade()),
        ])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::columns_of(1).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let bias = inputs.get(2).zip(self.bias);
        let (x, w) = (&inputs[0], &inputs[1]);
        Ok(match self.output {
            Some(dtype) => kernel::forward_in(dtype, &self.algebra, x, w, bias)?,
            None => kernel::forward(&self.algebra, x, w, bias)?,
        }
        .into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let needs = Needs { x: context.needs(0), w: context.needs(1), bias: context.needs(2) };
        let bias = self.bias.unwrap_or_default();
        let Gradients { x, w, bias } =
            kernel::backward_in(&self.algebra, &inputs[0], &inputs[1], bias, grad.array(), needs)?;
        Ok(constants([x, w].into_iter().chain(self.bias.map(|_| bias))))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        if let Some(dtype) = self.output {
            let x = inputs[0].cast(inputs[1].dtype())?;
            let operands: Vec<Tensor> = std::iter::once(&x).chain(&inputs[1..]).cloned().collect();
            return Self { output: None, ..self.clone() }.reexpress(&operands)?.cast(dtype);
        }
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

    fn output_dtype(&self, inputs: &[DType], computed: DType) -> DType {
        self.output.or_else(|| inputs.first().copied()).unwrap_or(computed)
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, matrices, ..] = inputs else { return Cost::default() };
        Cost { matrix_flops: cost::linear(x, matrices), element_flops: 0 }
    }
}
