//! The steerable product of the Clifford-group-equivariant layers.

use super::{norm::normalize_by_grade, prelude::*, product::sgp};
use gradewise_kernels::ops::clifford::{
    sgp::ProductOptions,
    steerable_gp::{self as kernel, Gradients, Operands},
};

/// Operands of [`steerable_product`].
#[derive(Clone, Copy, Debug)]
pub struct Steerable<'a> {
    /// Left factor `[blades, batch, features]`.
    pub x: &'a Tensor,
    /// Right factor before its normalisation, of the shape of `x`.
    pub right: &'a Tensor,
    /// Normalisation parameter `[features, grades]`.
    pub a: &'a Tensor,
    /// Product weights `[features, paths]`.
    pub w: &'a Tensor,
    /// Added to the product before dividing by √2; neither happens without it.
    pub left: Option<&'a Tensor>,
}

/// `(left + sgp(x, mv_normalization(right; a), w)) / √2`, or the product alone without `left`
/// (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn steerable_product(algebra: &Algebra, operands: &Steerable<'_>) -> Result<Tensor> {
    let Steerable { x, right, a, w, left } = *operands;
    let mut inputs = vec![x, right, a, w];
    inputs.extend(left);
    Tensor::apply(SteerableProduct { algebra: algebra.clone() }, &inputs)
}

/// Inputs: x, the right factor, its normalisation parameter, the product weights, and what is added if there is something.
#[derive(Serialize, Deserialize)]
pub(crate) struct SteerableProduct {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

fn operands(inputs: &[Array]) -> Operands<'_> {
    Operands { x: &inputs[0], right: &inputs[1], a: &inputs[2], w: &inputs[3], left: inputs.get(4) }
}

impl Operation for SteerableProduct {
    const NAME: &'static str = "steerable_gp";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const ARITY: (usize, usize) = (4, 5);

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |left: bool| {
            let mut inputs = vec![features(sizes), features(sizes), by_grade(sizes), path_weights(sizes)];
            inputs.extend(left.then(|| features(sizes)));
            Sample::new(SteerableProduct { algebra: sizes.algebra.clone() }, inputs)
        };
        Ok([false, true].map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.algebra, &operands(inputs))?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let operands = operands(inputs);
        let needs = [context.needs(0), context.needs(1) || context.needs(2), context.needs(3)];
        let Gradients { x, right, a, w, left } =
            kernel::backward(&self.algebra, &operands, grad.array(), needs)?;
        Ok(constants([x, right, a, w].into_iter().chain(operands.left.map(|_| left))))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let normalized = normalize_by_grade(&self.algebra, &inputs[1], &inputs[2])?;
        let product = sgp(&self.algebra, &inputs[0], &normalized, &inputs[3], ProductOptions::default())?;
        match inputs.get(4) {
            Some(left) => left.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2),
            None => Ok(product),
        }
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, ..] = inputs else { return Cost::default() };
        Cost { matrix_flops: 0, element_flops: cost::terms(&self.algebra, x) }
    }
}
