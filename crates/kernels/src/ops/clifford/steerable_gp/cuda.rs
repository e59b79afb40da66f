//! The steerable product on CUDA.

use super::{Gradients, NAME, Operands};
use crate::{
    Array, CudaDevice, DType, Result,
    ops::{
        self,
        clifford::{
            device::{DeviceAlgebra, DeviceProgram, is_narrow},
            mv_normalization::cuda as normalization,
            sgp::unrolled::{self, Around},
        },
    },
};
use gradewise_core::Algebra;
use std::f64::consts::FRAC_1_SQRT_2;

/// What the product is multiplied by.
fn scale(operands: &Operands<'_>) -> f64 {
    if operands.left.is_some() { FRAC_1_SQRT_2 } else { 1.0 }
}

/// The operands in `f32`.
fn widened<R>(operands: &Operands<'_>, work: impl FnOnce(&Operands<'_>) -> Result<R>) -> Result<R> {
    let wide = |array: &Array| array.cast(DType::F32);
    let Operands { x, right, a, w, left } = *operands;
    let [x, right, a, w] = [wide(x)?, wide(right)?, wide(a)?, wide(w)?];
    let left = left.map(wide).transpose()?;
    work(&Operands { x: &x, right: &right, a: &a, w: &w, left: left.as_ref() })
}

/// All operands are contiguous.
pub(in crate::ops::clifford) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: (usize, usize),
    operands: &Operands<'_>,
) -> Result<Array> {
    if is_narrow(operands.x.dtype()) {
        return widened(operands, |wide| forward(device, algebra, sizes, wide))?.cast(operands.x.dtype());
    }
    let Operands { x, right, a, w, left } = *operands;
    let normalized = normalization::forward(device, algebra, sizes, (right, a))?;
    let around = Around { gate: false, normalize: false, base: left, scale: scale(operands) };
    if let Some((output, _)) = unrolled::forward(device, algebra, (x, &normalized, w), around)? {
        return Ok(output);
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    tables.forward.product(device, NAME, (x, &normalized), Some(w), (left, scale(operands)))
}

/// As [`forward`]; `needs` says which of x, right and w to compute.
pub(in crate::ops::clifford) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: (usize, usize),
    operands: &Operands<'_>,
    grad: &Array,
    needs: [bool; 3],
) -> Result<Gradients> {
    let dtype = operands.x.dtype();
    if is_narrow(dtype) {
        let grad = grad.cast(DType::F32)?;
        let found = widened(operands, |wide| backward(device, algebra, sizes, wide, &grad, needs))?;
        let narrow = |array: Option<Array>| array.map(|array| array.cast(dtype)).transpose();
        return Ok(Gradients {
            x: narrow(found.x)?,
            right: narrow(found.right)?,
            a: narrow(found.a)?,
            w: narrow(found.w)?,
            left: narrow(found.left)?,
        });
    }
    let Operands { x, right, a, w, left } = *operands;
    let factor = scale(operands);
    let normalized = normalization::forward(device, algebra, sizes, (right, a))?;
    let [grad_x, upstream, weights] =
        match unrolled::backward(device, algebra, (x, &normalized, w), (false, factor), None, grad, needs)? {
            Some(found) => found,
            None => {
                let tables = DeviceAlgebra::of(device, algebra)?;
                let gradient = |needed: bool, program: &DeviceProgram, other: &Array| {
                    let product = || program.product(device, NAME, (grad, other), Some(w), (None, factor));
                    needed.then(product).transpose()
                };
                [
                    gradient(needs[0], &tables.grad_left, &normalized)?,
                    gradient(needs[1], &tables.grad_right, x)?,
                    needs[2]
                        .then(|| tables.by_path.weights(device, NAME, (x, &normalized), grad, factor))
                        .transpose()?,
                ]
            }
        };
    let mut gradients = Gradients { x: grad_x, w: weights, ..Gradients::default() };
    if let Some(upstream) = upstream {
        let through = normalization::backward(device, algebra, sizes, (right, a, &upstream))?;
        (gradients.right, gradients.a) = (Some(through.x), Some(through.a));
    }
    if left.is_some() {
        gradients.left = Some(ops::mul_scalar(grad, factor)?);
    }
    Ok(gradients)
}
