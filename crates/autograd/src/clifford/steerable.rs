//! The steerable product of the Clifford-group-equivariant layers, by itself and as a whole layer.

use super::{Bias, linear::mv_linear, norm::normalize_by_grade, of_algebra, product::sgp};
use crate::{Attributes, BackwardContext, Function, Result, Tensor};
use gradewise_core::Algebra;
use gradewise_kernels::{
    Array,
    ops::clifford::{
        sgp::ProductOptions,
        steerable_gp::{self as kernel, Gradients, Operands},
        steerable_layer as layer_kernel,
    },
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

struct SteerableProduct {
    algebra: Algebra,
}

fn operands(inputs: &[Array]) -> Operands<'_> {
    Operands { x: &inputs[0], right: &inputs[1], a: &inputs[2], w: &inputs[3], left: inputs.get(4) }
}

impl Function for SteerableProduct {
    fn name(&self) -> &'static str {
        "steerable_gp"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((kernel::forward(&self.algebra, &operands(inputs))?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let operands = operands(context.inputs());
        let needs = [context.needs(0), context.needs(1) || context.needs(2), context.needs(3)];
        let Gradients { x, right, a, w, left } = kernel::backward(&self.algebra, &operands, grad, needs)?;
        let mut gradients = vec![x, right, a, w];
        if operands.left.is_some() {
            gradients.push(left);
        }
        Ok(gradients)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let normalized = normalize_by_grade(&self.algebra, &inputs[1], &inputs[2])?;
        let product = sgp(&self.algebra, &inputs[0], &normalized, &inputs[3], ProductOptions::default())?;
        match inputs.get(4) {
            Some(left) => left.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2),
            None => Ok(product),
        }
    }
}

/// Operands of [`steerable_layer`].
#[derive(Clone, Copy, Debug)]
pub struct SteerableLayer<'a> {
    /// The input `[blades, batch, features]`.
    pub x: &'a Tensor,
    /// Matrices of the right factor `[grades, features, features]`.
    pub right: &'a Tensor,
    /// Normalisation parameter of the right factor `[features, grades]`.
    pub a: &'a Tensor,
    /// Product weights `[features, paths]`.
    pub w: &'a Tensor,
    /// Matrices `[grades, features, features]` and bias `[features]` of the map added to the product.
    pub left: Option<(&'a Tensor, &'a Tensor)>,
}

/// `(mv_linear(x; left, bias) + sgp(x, mv_normalization(mv_linear(x; right); a), w)) / √2`, or the product alone without
/// `left`: the whole layer in one operator, which pays for few features (Ruhe et al. 2023, arXiv:2305.11141).
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn steerable_layer(algebra: &Algebra, operands: &SteerableLayer<'_>) -> Result<Tensor> {
    let SteerableLayer { x, right, a, w, left } = *operands;
    let mut inputs = vec![x, right, a, w];
    if let Some((left, bias)) = left {
        inputs.extend([left, bias]);
    }
    Tensor::apply(FusedLayer { algebra: algebra.clone() }, &inputs)
}

struct FusedLayer {
    algebra: Algebra,
}

fn layer_operands(inputs: &[Array]) -> layer_kernel::Operands<'_> {
    let left = inputs.get(4).zip(inputs.get(5));
    layer_kernel::Operands { x: &inputs[0], right: &inputs[1], a: &inputs[2], w: &inputs[3], left }
}

impl Function for FusedLayer {
    fn name(&self) -> &'static str {
        "steerable_layer"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok((layer_kernel::forward(&self.algebra, &layer_operands(inputs))?, Vec::new()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let layer_kernel::Gradients { x, right, a, w, left } =
            layer_kernel::backward(&self.algebra, &layer_operands(context.inputs()), grad)?;
        let mut gradients = vec![Some(x), Some(right), Some(a), Some(w)];
        if let Some((left, bias)) = left {
            gradients.extend([Some(left), Some(bias)]);
        }
        Ok(gradients)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let right = mv_linear(&self.algebra, x, &inputs[1], None)?;
        let left = match inputs.get(4).zip(inputs.get(5)) {
            Some((left, bias)) => Some(mv_linear(&self.algebra, x, left, Some((bias, Bias::Scalar)))?),
            None => None,
        };
        let operands = Steerable { x, right: &right, a: &inputs[2], w: &inputs[3], left: left.as_ref() };
        steerable_product(&self.algebra, &operands)
    }
}
