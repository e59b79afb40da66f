//! The steerable layer on CUDA: one kernel where there is one for the algebra and few features, else its linear maps, each one launch, around
//! the steerable product.

use super::{Gradients, Operands, simt};
use crate::{
    Array, Compute, CudaDevice, DType, Result,
    ops::clifford::{
        algebra::contract::Planes,
        linear::mv_linear::{Bias, Needs, Sizes, cuda as linear},
        product::steerable_gp,
    },
};
use gradewise_core::Algebra;

/// The operands in `f32`. Products of `bf16` values are exact in TF32, those of `f16` values in `f32`.
fn widened<R>(operands: &Operands<'_>, work: impl FnOnce(&Operands<'_>) -> Result<R>) -> Result<R> {
    let wide = |array: &Array| array.cast(DType::F32);
    let Operands { x, right, a, w, left } = *operands;
    let compute = if x.dtype() == DType::BF16 { Compute::Tf32 } else { Compute::Exact };
    let [x, right, a, w] = [wide(x)?, wide(right)?, wide(a)?, wide(w)?];
    let left = left.map(|(left, bias)| Ok::<_, crate::Error>((wide(left)?, wide(bias)?))).transpose()?;
    let left = left.as_ref().map(|(left, bias)| (left, bias));
    compute.scope(|| work(&Operands { x: &x, right: &right, a: &a, w: &w, left }))
}

/// Square matrices for each grade.
fn maps(operands: &Operands<'_>) -> usize {
    1 + usize::from(operands.left.is_some())
}

/// All operands are contiguous.
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    operands: &Operands<'_>,
) -> Result<Array> {
    let dtype = operands.x.dtype();
    if dtype.is_short() {
        return widened(operands, |wide| forward(device, algebra, planes, wide))?.cast(dtype);
    }
    if let Some(plan) = simt::plan(device, algebra, planes, dtype, maps(operands)) {
        return simt::forward(device, &plan, operands);
    }
    let Operands { x, right, a, w, left } = *operands;
    let map = |weights: &Array, bias: Option<&Array>| {
        let bias = bias.map(|bias| (bias, Bias::Scalar));
        linear::forward(device, algebra, &Sizes::square(planes), x, weights, bias)
    };
    let right = map(right, None)?;
    let left = left.map(|(weights, bias)| map(weights, Some(bias))).transpose()?;
    let operands = steerable_gp::Operands { x, right: &right, a, w, left: left.as_ref() };
    steerable_gp::cuda::forward(device, algebra, planes, &operands)
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    operands: &Operands<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let dtype = operands.x.dtype();
    if dtype.is_short() {
        let grad = grad.cast(DType::F32)?;
        let found = widened(operands, |wide| backward(device, algebra, planes, wide, &grad))?;
        let left =
            found.left.map(|(left, bias)| Ok::<_, crate::Error>((left.cast(dtype)?, bias.cast(dtype)?)));
        return Ok(Gradients {
            x: found.x.cast(dtype)?,
            right: found.right.cast(dtype)?,
            a: found.a.cast(dtype)?,
            w: found.w.cast(dtype)?,
            left: left.transpose()?,
        });
    }
    if let Some(plan) = simt::plan(device, algebra, planes, dtype, maps(operands)) {
        return simt::backward(device, &plan, operands, grad);
    }
    let Operands { x, right, a, w, left } = *operands;
    let sizes = Sizes::square(planes);
    let mapped = linear::forward(device, algebra, &sizes, x, right, None)?;
    // The backward pass only needs to know that there is a left map, not its value: `mapped` stands in for it.
    let inner = steerable_gp::Operands { x, right: &mapped, a, w, left: left.is_some().then_some(&mapped) };
    let through =
        steerable_gp::cuda::backward(device, algebra, planes, &inner, grad, steerable_gp::Needs::ALL)?;
    let missing = || unreachable!("all gradients were asked for");
    let grad_x = through.x.unwrap_or_else(missing);
    let gradients = |w: &Array, upstream: &Array, needs: Needs| {
        let (bias, grad, add_to) = (Bias::Scalar, upstream, Some(&grad_x));
        linear::backward(device, algebra, &sizes, linear::Backward { x, w, bias, grad, needs, add_to })
    };
    let upstream = through.right.unwrap_or_else(missing);
    let right_gradients = gradients(right, &upstream, Needs { bias: false, ..Needs::ALL })?;
    let left_gradients = match (left, through.left) {
        (Some((weights, _)), Some(upstream)) => {
            let found = gradients(weights, &upstream, Needs::ALL)?;
            Some((found.w.unwrap_or_else(missing), found.bias.unwrap_or_else(missing)))
        }
        _ => None,
    };
    Ok(Gradients {
        x: grad_x,
        right: right_gradients.w.unwrap_or_else(missing),
        a: through.a.unwrap_or_else(missing),
        w: through.w.unwrap_or_else(missing),
        left: left_gradients,
    })
}
