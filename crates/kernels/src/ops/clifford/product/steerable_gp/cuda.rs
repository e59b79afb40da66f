//! The steerable product on CUDA.

use super::{Gradients, NAME, Needs, Operands};
use crate::{
    Array, CudaDevice, DType, Result,
    ops::{
        self,
        clifford::{
            algebra::{
                contract::Planes,
                device_algebra::{DeviceAlgebra, DeviceProgram, Terms},
            },
            pointwise::mv_normalization::Norm,
            product::sgp::{
                self, ProductGradients,
                unrolled::{self, Around},
            },
        },
    },
};
use gradewise_core::Algebra;
use std::f64::consts::FRAC_1_SQRT_2;

/// The scale of the product.
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
    planes: Planes,
    operands: &Operands<'_>,
) -> Result<Array> {
    if operands.x.dtype().is_short() {
        return widened(operands, |wide| forward(device, algebra, planes, wide))?.cast(operands.x.dtype());
    }
    let Operands { x, right, a, w, left } = *operands;
    let normalized = Norm::Smooth.on_cuda().forward(device, algebra, planes, right, &[a])?;
    let around = Around { gate: false, normalize: false, base: left, scale: scale(operands) };
    let factors = sgp::Operands { x, y: &normalized, w };
    if let Some(product) = unrolled::forward(device, algebra, &factors, around)? {
        return Ok(product.output);
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    let terms = Terms { base: left, scale: scale(operands), ..Terms::weighted(x, &normalized, w) };
    tables.forward.product(device, NAME, &terms)
}

/// As [`forward`].
pub(in crate::ops::clifford) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    operands: &Operands<'_>,
    grad: &Array,
    needs: Needs,
) -> Result<Gradients> {
    let dtype = operands.x.dtype();
    if dtype.is_short() {
        let grad = grad.cast(DType::F32)?;
        let found = widened(operands, |wide| backward(device, algebra, planes, wide, &grad, needs))?;
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
    let normalized = Norm::Smooth.on_cuda().forward(device, algebra, planes, right, &[a])?;
    let factors = sgp::Operands { x, y: &normalized, w };
    let around = Around { gate: false, normalize: false, base: None, scale: factor };
    let found = unrolled::backward(device, algebra, &factors, around, None, grad, needs.of_product())?;
    let product = match found {
        Some(found) => found,
        None => {
            let tables = DeviceAlgebra::of(device, algebra)?;
            let gradient = |needed: bool, program: &DeviceProgram, other: &Array| {
                let terms = Terms { scale: factor, ..Terms::weighted(grad, other, w) };
                needed.then(|| program.product(device, NAME, &terms)).transpose()
            };
            let weights = || tables.by_path.weights(device, NAME, x, &normalized, grad, factor);
            ProductGradients {
                x: gradient(needs.x, &tables.grad_left, &normalized)?,
                y: gradient(needs.right, &tables.grad_right, x)?,
                w: needs.w.then(weights).transpose()?,
                bias: None,
            }
        }
    };
    let mut gradients = Gradients { x: product.x, w: product.w, ..Gradients::default() };
    if let Some(upstream) = product.y {
        let (for_right, [for_a]) =
            Norm::Smooth.on_cuda().backward(device, algebra, planes, right, [a], &upstream)?;
        (gradients.right, gradients.a) = (Some(for_right), Some(for_a));
    }
    if left.is_some() {
        gradients.left = Some(ops::mul_scalar(grad, factor)?);
    }
    Ok(gradients)
}
