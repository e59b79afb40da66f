//! The steerable product of the Clifford-group-equivariant layers.

use super::{norm::normalize_by_grade, prelude::*, product::sgp};
use gradewise_kernels::ops::clifford::{
    sgp::ProductOptions,
    steerable_gp::{self as kernel, Gradients, Needs, Operands},
};

/// Operands of [`steerable_product`].
pub type Steerable<'a> = Operands<'a, Tensor>;

/// `(left + sgp(x, mv_normalization(right; a), w)) / √2`, or the product alone without `left`
/// (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn steerable_product(algebra: &Algebra, operands: &Steerable<'_>) -> Result<Tensor> {
    Tensor::apply(SteerableProduct { algebra: algebra.clone() }, &operands.all())
}

/// Inputs: x, the right factor, its normalisation parameter, the product weights, and what is added if there is something.
#[derive(Serialize, Deserialize)]
pub(crate) struct SteerableProduct {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

fn operands<T>(inputs: &[T]) -> Result<Operands<'_, T>> {
    Operands::from_all(inputs).ok_or_else(|| miscounted::<SteerableProduct>(inputs.len()))
}

impl Operation for SteerableProduct {
    const NAME: &'static str = "steerable_gp";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::rows("x"),
        Operand::rows("right"),
        Operand::parameter("a"),
        Operand::parameter("weight"),
        Operand::rows("left").optional(),
    ];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |left: bool| {
            let mut inputs = vec![features(sizes), features(sizes), by_grade(sizes), path_weights(sizes)];
            inputs.extend(left.then(|| features(sizes)));
            Sample::new(SteerableProduct { algebra: sizes.algebra.clone() }, inputs)
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
        let needs =
            Needs { x: context.needs(0), right: context.needs(1) || context.needs(2), w: context.needs(3) };
        let Gradients { x, right, a, w, left } =
            kernel::backward(&self.algebra, &operands, grad.array(), needs)?;
        Ok(constants([x, right, a, w].into_iter().chain(operands.left.map(|_| left))))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let Steerable { x, right, a, w, left } = operands(inputs)?;
        let normalized = normalize_by_grade(&self.algebra, right, a)?;
        let product = sgp(&self.algebra, x, &normalized, w, ProductOptions::default())?;
        match left {
            Some(left) => left.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2),
            None => Ok(product),
        }
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, ..] = inputs else { return Cost::default() };
        Cost { matrix_flops: 0, element_flops: cost::terms(&self.algebra, x) }
    }
}
