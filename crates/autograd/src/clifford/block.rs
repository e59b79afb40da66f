//! A whole block of the equivariant networks.

use super::{
    Bias,
    linear::mv_linear,
    norm::mv_layer_norm,
    prelude::*,
    silu::mv_silu,
    steerable::{Steerable, steerable_product},
    steerable_layer::{SteerableLayer, steerable_layer},
    steerable_layer_pays,
};
use crate::current_policy;
use gradewise_kernels::ops::clifford::mv_block as kernel;

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
    fn arrays(&self) -> kernel::Operands<'a> {
        let Self { x, linear, silu, right, normalization, product, left, gain, residual } = *self;
        let pair = |(first, second): (&'a Tensor, &'a Tensor)| (first.array(), second.array());
        kernel::Operands {
            x: x.array(),
            linear: pair(linear),
            silu: pair(silu),
            right: right.array(),
            normalization: normalization.array(),
            product: product.array(),
            left: pair(left),
            gain: gain.array(),
            residual: residual.map(Tensor::array),
        }
    }

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
    if kernel::serves(algebra, &operands.arrays()) {
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

/// Inputs in the order of [`MvBlock::from_all`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Block {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for Block {
    const NAME: &'static str = "mv_block";
    // As its parts, each by its own rule: the one kernel computes in f32 alone.
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const ARITY: (usize, usize) = (11, 12);
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let count = sizes.features;
        let maps = || matrices(sizes, count, count);
        let by_feature = || Input::normal([count]);
        let sample = |residual: bool| {
            let mut inputs =
                vec![features(sizes), maps(), by_feature(), by_grade(sizes), by_grade(sizes), maps()];
            inputs.extend([by_grade(sizes), path_weights(sizes), maps(), by_feature(), by_feature()]);
            inputs.extend(residual.then(|| features(sizes)));
            Sample::new(Block { algebra: sizes.algebra.clone() }, inputs)
        };
        Ok([false, true].map(sample).into())
    }

    fn serves(&self, inputs: &[Array]) -> bool {
        kernel::Operands::from_all(inputs).is_some_and(|operands| kernel::serves(&self.algebra, &operands))
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let kernel::Forward { output, kept } = kernel::forward(&self.algebra, &operands(inputs)?)?;
        Ok(Forward { output, saved: kept.into() })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (inputs, kept) = (context.arrays(), context.saved::<3>(Self::NAME)?);
        let operands = operands(inputs)?;
        let mut gradients = kernel::backward(&self.algebra, &operands, kept, grad.array(), context.needs(0))?;
        gradients.extend(operands.residual.map(|_| Some(grad.array().clone())));
        Ok(constants(gradients))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        separately(&self.algebra, &MvBlock::from_all(inputs).ok_or_else(|| miscounted(inputs.len()))?)
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, linear, _, _, _, right, _, _, left, ..] = inputs else { return Cost::default() };
        // The first map's output has the features of the block, whatever its input has.
        let hidden = match (*x, *right) {
            (&[blades, batch, _], &[.., features]) => [blades, batch, features],
            _ => return Cost::default(),
        };
        let maps = [cost::linear(x, linear), cost::linear(&hidden, right), cost::linear(&hidden, left)];
        Cost { matrix_flops: maps.iter().sum(), element_flops: cost::terms(&self.algebra, &hidden) }
    }
}

fn operands(inputs: &[Array]) -> Result<kernel::Operands<'_>> {
    kernel::Operands::from_all(inputs).ok_or_else(|| miscounted(inputs.len()))
}

fn miscounted(inputs: usize) -> Error {
    let message = format!("{inputs} inputs were given, expected 11, or 12 with a residual");
    Error::Argument { operation: Block::NAME, message }
}
