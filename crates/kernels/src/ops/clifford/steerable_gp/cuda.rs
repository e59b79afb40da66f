//! The steerable product on CUDA.

use super::{Gradients, NAME, Operands};
use crate::{
    Array, CudaDevice, Result,
    ops::{
        self,
        clifford::{device::DeviceAlgebra, mv_normalization::cuda as normalization},
    },
};
use gradewise_core::Algebra;
use std::f64::consts::FRAC_1_SQRT_2;

/// What the product is multiplied by.
fn scale(operands: &Operands<'_>) -> f64 {
    if operands.left.is_some() { FRAC_1_SQRT_2 } else { 1.0 }
}

/// All operands are contiguous.
pub(in crate::ops::clifford) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: (usize, usize),
    operands: &Operands<'_>,
) -> Result<Array> {
    let Operands { x, right, a, w, left } = *operands;
    let tables = DeviceAlgebra::of(device, algebra)?;
    let normalized = normalization::forward(device, algebra, sizes, (right, a))?;
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
    let Operands { x, right, a, w, left } = *operands;
    let tables = DeviceAlgebra::of(device, algebra)?;
    let factor = scale(operands);
    let normalized = normalization::forward(device, algebra, sizes, (right, a))?;
    let mut gradients = Gradients::default();
    if needs[0] {
        let operands = (grad, &normalized);
        gradients.x = Some(tables.grad_left.product(device, NAME, operands, Some(w), (None, factor))?);
    }
    if needs[1] {
        let upstream = tables.grad_right.product(device, NAME, (grad, x), Some(w), (None, factor))?;
        let through = normalization::backward(device, algebra, sizes, (right, a, &upstream))?;
        (gradients.right, gradients.a) = (Some(through.x), Some(through.a));
    }
    if needs[2] {
        gradients.w = Some(tables.by_path.weights(device, NAME, (x, &normalized), grad, factor)?);
    }
    if left.is_some() {
        gradients.left = Some(ops::mul_scalar(grad, factor)?);
    }
    Ok(gradients)
}
