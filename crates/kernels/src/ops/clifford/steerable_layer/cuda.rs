//! The steerable layer on CUDA: its linear maps, each one launch, around the steerable product.

use super::{Gradients, Operands};
use crate::{
    Array, CudaDevice, Result,
    ops::clifford::{
        mv_linear::{Bias, cuda as linear},
        steerable_gp,
    },
};
use gradewise_core::Algebra;

/// All operands are contiguous.
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    (batch, features): (usize, usize),
    operands: &Operands<'_>,
) -> Result<Array> {
    let Operands { x, right, a, w, left } = *operands;
    let map = |weights: &Array, bias: Option<&Array>| {
        let bias = bias.map(|bias| (bias, Bias::Scalar));
        linear::forward(device, algebra, &linear::square(batch, features), (x, weights), bias)
    };
    let right = map(right, None)?;
    let left = left.map(|(weights, bias)| map(weights, Some(bias))).transpose()?;
    let operands = steerable_gp::Operands { x, right: &right, a, w, left: left.as_ref() };
    steerable_gp::cuda::forward(device, algebra, (batch, features), &operands)
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    (batch, features): (usize, usize),
    operands: &Operands<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let Operands { x, right, a, w, left } = *operands;
    let sizes = linear::square(batch, features);
    let mapped = linear::forward(device, algebra, &sizes, (x, right), None)?;
    // The value of the left map is not needed, only that there is one.
    let inner = steerable_gp::Operands { x, right: &mapped, a, w, left: left.is_some().then_some(&mapped) };
    let through = steerable_gp::cuda::backward(device, algebra, (batch, features), &inner, grad, [true; 3])?;
    let missing = || unreachable!("all gradients were asked for");
    let grad_x = through.x.unwrap_or_else(missing);
    let upstream = through.right.unwrap_or_else(missing);
    linear::add_input_gradient(device, algebra, &sizes, right, &upstream, &grad_x)?;
    let needs = [false, true, false];
    let right_gradients =
        linear::backward(device, algebra, &sizes, (x, right, &upstream), Bias::Scalar, needs)?;
    let left_gradients = match (left, through.left) {
        (Some((weights, _)), Some(upstream)) => {
            linear::add_input_gradient(device, algebra, &sizes, weights, &upstream, &grad_x)?;
            let needs = [false, true, true];
            let found =
                linear::backward(device, algebra, &sizes, (x, weights, &upstream), Bias::Scalar, needs)?;
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
