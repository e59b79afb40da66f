//! A whole block of the equivariant networks.

use super::{
    Bias,
    linear::mv_linear,
    norm::mv_layer_norm,
    of_algebra,
    silu::mv_silu,
    steerable::{Steerable, SteerableLayer, steerable_layer, steerable_product},
    steerable_layer_pays,
};
use crate::{Attributes, BackwardContext, Function, Result, Rule, Tensor, current_policy};
use gradewise_core::Algebra;
use gradewise_kernels::{Array, Device, ops::clifford::mv_block as kernel};

/// Operands of [`mv_block`]; shapes as in [`kernel::Operands`].
#[derive(Clone, Copy, Debug)]
pub struct MvBlock<'a> {
    /// The input `[blades, batch, inputs]`.
    pub x: &'a Tensor,
    /// Matrices `[grades, inputs, features]` and bias `[features]` (on the scalar) of the first map.
    pub linear: (&'a Tensor, &'a Tensor),
    /// `a` and `b` of the silu, `[features, grades]`.
    pub silu: (&'a Tensor, &'a Tensor),
    /// Matrices of the right factor `[grades, features, features]`.
    pub right: &'a Tensor,
    /// Normalisation parameter of the right factor `[features, grades]`.
    pub normalization: &'a Tensor,
    /// Product weights `[features, paths]`.
    pub product: &'a Tensor,
    /// Matrices `[grades, features, features]` and bias `[features]` of the map added to the product.
    pub left: (&'a Tensor, &'a Tensor),
    /// Gain of the layer norm `[features]`.
    pub gain: &'a Tensor,
    /// What is added to the output, of its shape.
    pub residual: Option<&'a Tensor>,
}

impl<'a> MvBlock<'a> {
    fn all(&self) -> Vec<&'a Tensor> {
        let Self { x, linear, silu, right, normalization, product, left, gain, residual } = *self;
        [x, linear.0, linear.1, silu.0, silu.1, right, normalization, product, left.0, left.1, gain]
            .into_iter()
            .chain(residual)
            .collect()
    }

    /// The operands in the order in which the operator takes them: x, the matrices and bias of the first map, `a` and `b`, the right
    /// matrices, normalisation, product weights, the left matrices and bias, gain, and the residual if there is one. `None` for another
    /// number of them.
    pub fn from_all(inputs: &'a [Tensor]) -> Option<Self> {
        let [x, w, bias, a, b, right, normalization, product, left, left_bias, gain, residual @ ..] = inputs
        else {
            return None;
        };
        let residual = match residual {
            [] => None,
            [residual] => Some(residual),
            _ => return None,
        };
        Some(Self {
            x,
            linear: (w, bias),
            silu: (a, b),
            right,
            normalization,
            product,
            left: (left, left_bias),
            gain,
            residual,
        })
    }
}

/// `mv_layer_norm(layer(mv_silu(mv_linear(x))))` with the steerable layer of Ruhe et al. 2023 (arXiv:2305.11141), added to the residual
/// if there is one: one operator where a kernel [`serves`](kernel::serves), the separate ones elsewhere.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_block(algebra: &Algebra, operands: &MvBlock<'_>) -> Result<Tensor> {
    let all = operands.all();
    // In mixed precision the block is its parts, each by its own rule, unless it is to stay in f32: the one kernel knows nothing else.
    if current_policy().is_some_and(|policy| policy.rule("mv_block") != Rule::Full) {
        return separately(algebra, operands);
    }
    let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
    if kernel::Operands::from_all(&arrays).is_some_and(|operands| kernel::serves(algebra, &operands)) {
        return Tensor::apply(Block { algebra: algebra.clone() }, &all);
    }
    if operands.residual.is_some() {
        // Of another dtype, for example: the rest may be served.
        let output = mv_block(algebra, &MvBlock { residual: None, ..*operands })?;
        return add_residual(operands, output);
    }
    separately(algebra, operands)
}

fn add_residual(operands: &MvBlock<'_>, output: Tensor) -> Result<Tensor> {
    let Some(residual) = operands.residual else { return Ok(output) };
    let reason = || "it has the shape of the output".to_owned();
    residual.array().require_shape("mv_block", "residual", output.shape().dims(), reason)?;
    residual.add(&output)
}

/// The block by its operators.
fn separately(algebra: &Algebra, operands: &MvBlock<'_>) -> Result<Tensor> {
    let MvBlock { x, linear, silu, right, normalization, product, left, gain, .. } = *operands;
    let y = mv_linear(algebra, x, linear.0, Some((linear.1, Bias::Scalar)))?;
    let h = mv_silu(algebra, &y, silu.0, silu.1)?;
    let sum = if steerable_layer_pays(gain.shape().elements()) {
        let operands = SteerableLayer { x: &h, right, a: normalization, w: product, left: Some(left) };
        steerable_layer(algebra, &operands)?
    } else {
        let factor = mv_linear(algebra, &h, right, None)?;
        let added = mv_linear(algebra, &h, left.0, Some((left.1, Bias::Scalar)))?;
        let operands = Steerable { x: &h, right: &factor, a: normalization, w: product, left: Some(&added) };
        steerable_product(algebra, &operands)?
    };
    add_residual(operands, mv_layer_norm(algebra, &sum, gain)?)
}

struct Block {
    algebra: Algebra,
}

impl Function for Block {
    fn name(&self) -> &'static str {
        "mv_block"
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
    }

    fn serves(&self, device: &Device) -> bool {
        matches!(device, Device::Cuda(_))
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let kernel::Forward { output, kept } = kernel::forward(&self.algebra, &operands(inputs))?;
        Ok((output, kept.into()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let [y, r, s] = context.saved() else { unreachable!("what the forward pass kept") };
        let kept = [y.clone(), r.clone(), s.clone()];
        let operands = operands(context.inputs());
        let mut gradients = kernel::backward(&self.algebra, &operands, &kept, grad, context.needs(0))?;
        gradients.extend(operands.residual.map(|_| Some(grad.clone())));
        Ok(gradients)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let Some(operands) = MvBlock::from_all(inputs) else {
            unreachable!("mv_block is applied to all its operands")
        };
        separately(&self.algebra, &operands)
    }
}

fn operands(inputs: &[Array]) -> kernel::Operands<'_> {
    kernel::Operands::from_all(inputs)
        .unwrap_or_else(|| unreachable!("mv_block is applied to all its operands"))
}
