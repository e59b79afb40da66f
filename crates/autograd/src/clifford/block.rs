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
use crate::{current_policy, without_autocast};
use gradewise_kernels::ops::clifford::mv_block as kernel;
use smallvec::SmallVec;

/// Operands of [`mv_block`].
pub type MvBlock<'a> = kernel::Operands<'a, Tensor>;

/// `mv_layer_norm(layer(mv_silu(mv_linear(x))))` with the steerable layer of Ruhe et al. 2023 (arXiv:2305.11141), added to the residual
/// if there is one: one operator where a kernel [`serves`](kernel::serves), the separate ones elsewhere.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn mv_block(algebra: &Algebra, operands: &MvBlock<'_>) -> Result<Tensor> {
    if let Some(policy) = current_policy() {
        match policy.rule(Block::NAME) {
            // The one kernel takes features in 16 bits and parameters as they are, so that those need no conversion.
            Rule::Short
                if kernel::serves_features_in(policy.dtype(), algebra, &operands.map(Tensor::array)) =>
            {
                let x = operands.x.cast(policy.dtype())?;
                let residual = operands.residual.map(|residual| residual.cast(policy.dtype())).transpose()?;
                let operands = MvBlock { x: &x, residual: residual.as_ref(), ..*operands };
                return without_autocast(|| mv_block(algebra, &operands));
            }
            Rule::Full => {}
            // Its parts, each by its own rule.
            _ => return separately(algebra, operands),
        }
    }
    if kernel::serves(algebra, &operands.map(Tensor::array)) {
        let inputs: SmallVec<[&Tensor; 12]> = operands.all().into_iter().chain(operands.residual).collect();
        return Tensor::apply(Block { algebra: algebra.clone() }, &inputs);
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
    let dtype = operands.x.dtype();
    if current_policy().is_none() && operands.gain.dtype() != dtype {
        // What the one kernel takes in mixed precision: its parts want operands of one dtype.
        let cast: Vec<Tensor> =
            operands.all().into_iter().map(|operand| operand.cast(dtype)).collect::<Result<_>>()?;
        let all = operands_of::<Tensor>(&cast)?;
        return separately(algebra, &MvBlock { residual: operands.residual, ..all });
    }
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

/// What the forward pass keeps between its kernels.
const fn saved(name: &'static str) -> SavedArray {
    SavedArray { name, is_wide: false, needs_kernels: true }
}

/// Inputs in the order of [`MvBlock::from_all`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Block {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for Block {
    const NAME: &'static str = "mv_block";
    // Features in 16 bits; `mv_block` leaves parameters as they are where there is a kernel.
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::rows("x"),
        Operand::parameter("linear").wide_and_packed(),
        Operand::parameter("bias").wide_and_packed(),
        Operand::parameter("a").wide_and_packed(),
        Operand::parameter("b").wide_and_packed(),
        Operand::parameter("right").wide_and_packed(),
        Operand::parameter("normalization").wide_and_packed(),
        Operand::parameter("weight").wide_and_packed(),
        Operand::parameter("left").wide_and_packed(),
        Operand::parameter("left_bias").wide_and_packed(),
        Operand::parameter("gain").wide_and_packed(),
        Operand::rows("residual").optional(),
    ];
    const SAVED: &'static [SavedArray] = &[saved("linear_output"), saved("right_factor"), saved("sum")];
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

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(Axis::columns_of(1).into())
    }

    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        vec![Some(Axis::columns_of(1).into()); 3]
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let kernel::Forward { output, kept } = kernel::forward(&self.algebra, &operands_of(inputs)?)?;
        Ok(Forward { output, saved: kept.arrays().to_vec() })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let operands = operands_of(context.arrays())?;
        let kept = kernel::Kept::from_arrays(context.saved).ok_or_else(|| Error::Argument {
            operation: Self::NAME,
            message: format!(
                "its forward pass saved {} arrays, its backward pass reads 3 or 2",
                context.saved.len()
            ),
        })?;
        let mut gradients =
            kernel::backward(&self.algebra, &operands, &kept, grad.array(), context.needs(0))?;
        gradients.extend(operands.residual.map(|_| Some(grad.array().clone())));
        Ok(constants(gradients))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        separately(&self.algebra, &operands_of(inputs)?)
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

fn operands_of<T>(inputs: &[T]) -> Result<kernel::Operands<'_, T>> {
    kernel::Operands::from_all(inputs).ok_or_else(|| miscounted::<Block>(inputs.len()))
}
