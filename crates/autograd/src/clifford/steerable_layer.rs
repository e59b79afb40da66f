//! The steerable product with its linear maps: a whole layer of the Clifford-group-equivariant networks as one operator.

use super::{
    Bias,
    linear::mv_linear,
    prelude::*,
    steerable::{Steerable, steerable_product},
};
use gradewise_kernels::ops::clifford::steerable_layer as kernel;

/// Operands of [`steerable_layer`].
pub type SteerableLayer<'a> = kernel::Operands<'a, Tensor>;

/// `(mv_linear(x; left, bias) + sgp(x, mv_normalization(mv_linear(x; right); a), w)) / √2`, or the product alone without
/// `left`: the whole layer in one operator, which pays for few features (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn steerable_layer(algebra: &Algebra, operands: &SteerableLayer<'_>) -> Result<Tensor> {
    Tensor::apply(FusedLayer { algebra: algebra.clone() }, &operands.all())
}

/// Inputs: x, the right matrices, the normalisation parameter, the product weights, and the left matrices and their bias if
/// there are any.
#[derive(Serialize, Deserialize)]
pub(crate) struct FusedLayer {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

fn operands<T>(inputs: &[T]) -> Result<kernel::Operands<'_, T>> {
    kernel::Operands::from_all(inputs).ok_or_else(|| miscounted::<FusedLayer>(inputs.len()))
}

impl Operation for FusedLayer {
    const NAME: &'static str = "steerable_layer";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::rows("x"),
        Operand::parameter("right"),
        Operand::parameter("a"),
        Operand::parameter("weight"),
        Operand::parameter("left").optional(),
        Operand::parameter("left_bias").optional(),
    ];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let count = sizes.features;
        let maps = || matrices(sizes, count, count);
        let sample = |left: bool| {
            let mut inputs = vec![features(sizes), maps(), by_grade(sizes), path_weights(sizes)];
            if left {
                inputs.extend([maps(), Input::normal([count])]);
            }
            Sample::new(FusedLayer { algebra: sizes.algebra.clone() }, inputs)
        };
        Ok([false, true].map(sample).into())
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::all_of(0).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.algebra, &operands(inputs)?)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let operands = operands(context.arrays())?;
        let kernel::Gradients { x, right, a, w, left } =
            kernel::backward(&self.algebra, &operands, grad.array())?;
        let mut gradients = vec![Some(x), Some(right), Some(a), Some(w)];
        if let Some((left, bias)) = left {
            gradients.extend([Some(left), Some(bias)]);
        }
        Ok(constants(gradients))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let SteerableLayer { x, right, a, w, left } = operands(inputs)?;
        let right = mv_linear(&self.algebra, x, right, None)?;
        let left = match left {
            Some((left, bias)) => Some(mv_linear(&self.algebra, x, left, Some((bias, Bias::Scalar)))?),
            None => None,
        };
        let operands = Steerable { x, right: &right, a, w, left: left.as_ref() };
        steerable_product(&self.algebra, &operands)
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, right, _, _, left @ ..] = inputs else { return Cost::default() };
        let left = left.first().map_or(0, |left| cost::linear(x, left));
        Cost { matrix_flops: cost::linear(x, right) + left, element_flops: cost::terms(&self.algebra, x) }
    }
}
