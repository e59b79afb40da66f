//! The layer of the Flash-Clifford family as one operator: `y = mv_linear(x) + bias`, then `norm(product(gate(x), gate(y), w))`.
//!
//! Compared with the separate operators it saves memory passes in the backward direction: `x` has two uses, and the second gradient is
//! accumulated onto the first where it is computed.

use crate::ops::clifford::{
    algebra::operands::shared,
    linear::mv_linear::{self, Bias},
    product::{
        fcgp,
        sgp::{self, Product, ProductOptions, RightGradient, Wanted},
    },
};
use crate::{Array, Result};
use gradewise_core::Algebra;

/// Operands of the layer; shapes as of [`mv_linear`] and [`sgp`] or [`fcgp`]. Arrays, or tensors of the crate above.
#[derive(Debug)]
pub struct Operands<'a, T = Array> {
    /// The input `[blades, batch, features]`.
    pub x: &'a T,
    /// Matrices `[grades, features, features]` of the linear map.
    pub linear: &'a T,
    /// Bias `[features]` of the linear map.
    pub bias: Option<(&'a T, Bias)>,
    /// Product weights: `[features, paths]`, or `[paths, features, out]` if the product is fully connected.
    pub w: &'a T,
}

shared!(Operands);

/// Which gradients to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// That of `x`.
    pub x: bool,
    /// That of the matrices.
    pub linear: bool,
    /// That of the bias.
    pub bias: bool,
    /// That of the product weights.
    pub w: bool,
}

impl Needs {
    /// All of them.
    pub const ALL: Self = Self { x: true, linear: true, bias: true, w: true };
}

/// Options of the layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether the product is fully connected.
    pub fully_connected: bool,
    /// Gate and norm.
    pub product: ProductOptions,
}

/// The output, and `y`, which the backward pass reads or computes again.
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
    let factors = sgp::Operands { x: operands.x, y: &y, w: operands.w };
    let product = product(algebra, &factors, options.product)?;
    Ok(Output { product, y })
}

/// What [`backward`] reads of an [`Output`].
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The product with its norm.
    pub product: &'a Product,
    /// The mapped input; `None` to compute it again.
    pub y: Option<&'a Array>,
}

/// Gradients for the cotangent `grad` of the output, those that `needs` selects.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: Options,
    kept: Kept<'_>,
    grad: &Array,
    needs: Needs,
) -> Result<Gradients> {
    let (Operands { x, linear, bias, w }, Kept { product, y }) = (*operands, kept);
    // A saved `y` shares its memory.
    let y = y.map_or_else(|| mv_linear::forward(algebra, x, linear, bias), |y| Ok(y.clone()))?;
    let of_map = mv_linear::Needs { x: needs.x, w: needs.linear, bias: needs.bias };
    let of_product = sgp::Needs { x: needs.x, y: needs.x || needs.linear || needs.bias, w: needs.w };
    let factors = sgp::Operands { x, y: &y, w };
    let found = if options.fully_connected {
        fcgp::backward(algebra, &factors, options.product, product, grad, of_product)?
    } else {
        let right = match mv_linear::reads_transposed(algebra, x, linear, of_map)? {
            true => RightGradient::Transposed,
            false => RightGradient::Contiguous,
        };
        let wanted = Wanted { needs: of_product, right };
        sgp::backward_with(algebra, &factors, options.product, product, grad, wanted)?
    };
    let mut gradients = Gradients { x: found.x, w: found.w, ..Gradients::default() };
    let Some(upstream) = found.y else { return Ok(gradients) };
    // Frees a recomputed `y`.
    drop(y);
    let bias = bias.map_or_else(Bias::default, |(_, bias)| bias);
    let summed = if bias == Bias::Scalar { found.bias.filter(|_| needs.bias) } else { None };
    let needs = mv_linear::Needs { bias: needs.bias && summed.is_none(), ..of_map };
    let direct = gradients.x.take();
    let mapped = mv_linear::backward_adding(algebra, x, linear, bias, &upstream, needs, direct.as_ref())?;
    (gradients.x, gradients.linear, gradients.bias) = (mapped.x, mapped.w, summed.or(mapped.bias));
    Ok(gradients)
}
