//! The layer of the Flash-Clifford family as one operator: `y = mv_linear(x) + bias`, then `norm(product(gate(x), gate(y), w))`.
//!
//! Against its parts it saves passes over memory in the backward direction: `x` enters twice, and the second of its gradients is
//! added to the first where it is computed.

use super::{
    fcgp, mv_linear,
    mv_linear::Bias,
    sgp::{self, Product, ProductOptions, RightGradient},
};
use crate::{Array, Result};
use gradewise_core::Algebra;

/// Operands of the layer; shapes as of [`mv_linear`] and [`sgp`] or [`fcgp`].
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The input `[blades, batch, features]`.
    pub x: &'a Array,
    /// Matrices `[grades, features, features]`.
    pub linear: &'a Array,
    /// Bias `[features]` of the linear map.
    pub bias: Option<(&'a Array, Bias)>,
    /// Product weights: `[features, paths]`, or `[paths, features, out]` of the fully connected product.
    pub w: &'a Array,
}

/// What the layer does besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether the product is fully connected.
    pub fully_connected: bool,
    /// Gate and norm.
    pub product: ProductOptions,
}

/// The output, and `y`, which the gradients need; it can be computed again.
#[derive(Clone, Debug)]
pub struct Output {
    /// The product with its norm.
    pub product: Product,
    /// The mapped input.
    pub y: Array,
}

/// Gradients of the operands that were asked for.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// Of `x`.
    pub x: Option<Array>,
    /// Of the matrices.
    pub linear: Option<Array>,
    /// Of the bias.
    pub bias: Option<Array>,
    /// Of the product weights.
    pub w: Option<Array>,
}

/// The layer's output.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>, options: Options) -> Result<Output> {
    let y = mv_linear::forward(algebra, operands.x, operands.linear, operands.bias)?;
    let product = if options.fully_connected { fcgp::forward } else { sgp::forward };
    let product = product(algebra, operands.x, &y, operands.w, options.product)?;
    Ok(Output { product, y })
}

/// Gradients for the cotangent `grad` of the output; `y` is that of [`forward`], or `None` to compute it again. `needs` is for x,
/// the matrices, the bias and the product weights.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: Options,
    (product, y): (&Product, Option<&Array>),
    grad: &Array,
    [need_x, need_linear, need_bias, need_w]: [bool; 4],
) -> Result<Gradients> {
    let Operands { x, linear, bias, w } = *operands;
    let again = match y {
        Some(_) => None,
        None => Some(mv_linear::forward(algebra, x, linear, bias)?),
    };
    let Some(y) = y.or(again.as_ref()) else { unreachable!("given or computed") };
    let need_y = need_x || need_linear || need_bias;
    let (operands, needs) = ((x, y, w), [need_x, need_y, need_w]);
    let found = if options.fully_connected {
        fcgp::backward(algebra, operands, options.product, product, grad, needs)?
    } else {
        let right = match mv_linear::reads_transposed(algebra, x, linear, [need_x, need_linear])? {
            true => RightGradient::Transposed,
            false => RightGradient::Contiguous,
        };
        sgp::backward_with(algebra, operands, options.product, product, grad, (needs, right))?
    };
    let mut gradients = Gradients { x: found.x, w: found.weights, ..Gradients::default() };
    let Some(upstream) = found.y else { return Ok(gradients) };
    drop(again);
    let bias = bias.map_or_else(Bias::default, |(_, bias)| bias);
    let summed = if bias == Bias::Scalar { found.bias.filter(|_| need_bias) } else { None };
    let needs = [need_x, need_linear, need_bias && summed.is_none()];
    let direct = gradients.x.take();
    let mapped = mv_linear::backward_adding(algebra, x, linear, bias, &upstream, needs, direct.as_ref())?;
    (gradients.x, gradients.linear, gradients.bias) = (mapped.x, mapped.w, summed.or(mapped.bias));
    Ok(gradients)
}
