//! Kernels that rotate vectors: one rotation, by a quaternion, for each pair of channels and tap.

use super::{blocks::of_blocks, prelude::*};

/// The rotation matrix, by rows, of q/√(Σq² + 1e-4) for quaternions q `[4, …]`: R = 1 + 2q₀[v]× + 2[v]×², times `scale` `[…]`.
/// 16-bit weights are turned into matrices in `f32`.
fn scaled_rotation(q: &Tensor, scale: &Tensor) -> Result<[[Tensor; 3]; 3]> {
    /// Keeps the norm of a zero quaternion from dividing by zero.
    const SMOOTHING: f64 = 1e-4;
    let dtype = q.dtype();
    if dtype.is_short() {
        let [[a, b, c], [d, e, f], [g, h, i]] =
            scaled_rotation(&q.cast(dtype.accumulator())?, &scale.cast(dtype.accumulator())?)?;
        let narrow = |entry: Tensor| entry.cast(dtype);
        return Ok([
            [narrow(a)?, narrow(b)?, narrow(c)?],
            [narrow(d)?, narrow(e)?, narrow(f)?],
            [narrow(g)?, narrow(h)?, narrow(i)?],
        ]);
    }
    let unit = q.mul(&q.square()?.sum(&[0], true)?.add_scalar(SMOOTHING)?.rsqrt()?)?;
    let shape = scale.shape().clone();
    let part = |at: usize| unit.slice(0, at..at + 1)?.reshape(shape.clone());
    let (q0, v) = (part(0)?, [part(1)?, part(2)?, part(3)?]);
    let square = v[0].square()?.add(&v[1].square()?)?.add(&v[2].square()?)?;
    let diagonal = square.mul_scalar(-2.0)?.add_scalar(1.0)?;
    let entry = |row: usize, column: usize| -> Result<Tensor> {
        let outer = v[row].mul(&v[column])?.mul_scalar(2.0)?;
        let value = if row == column {
            outer.add(&diagonal)?
        } else {
            // [v]× has −v_c at (a, b) for cyclic (a, b, c), v_c at (b, a).
            let cyclic = (row + 1) % 3 == column;
            let turn = q0.mul(&v[3 - row - column])?.mul_scalar(if cyclic { -2.0 } else { 2.0 })?;
            outer.add(&turn)?
        };
        value.mul(scale)
    };
    let row = |row: usize| -> Result<[Tensor; 3]> { Ok([entry(row, 0)?, entry(row, 1)?, entry(row, 2)?]) };
    Ok([row(0)?, row(1)?, row(2)?])
}

fn require(operation: &'static str, q: &Tensor, scale: &Tensor) -> Result<()> {
    let expected: Vec<usize> = [4].into_iter().chain(scale.shape().iter().copied()).collect();
    if scale.shape().rank() < 3 {
        return refuse(operation, format!("`scale` has shape {}, expected [out, in, *taps]", scale.shape()));
    }
    require_shape(operation, "weights", q, &expected, "a quaternion for each scale")
}

/// The kernel `[4, out, 4, *taps, in]` of the rotational Clifford layer of metric (−1,−1), from weights `[4, out, in, *taps]` and scales
/// `[out, in, *taps]`: y₀ = x₀∗w₀ − x₁∗w₁ − x₂∗w₂ − x₃∗w₃, and (y₁, y₂, y₃) is (x₁, x₂, x₃) turned by the quaternion w and scaled.
///
/// # Errors
/// Shapes that do not fit together.
pub fn rotation_kernel(weights: &Tensor, scale: &Tensor) -> Result<Tensor> {
    require("rotation_kernel", weights, scale)?;
    let rotation = scaled_rotation(weights, scale)?;
    let zero = Tensor::zeros(scale.shape(), scale.dtype(), &scale.device())?;
    let of_scalar = |at: usize| -> Result<Tensor> {
        let weight = weights.slice(0, at..at + 1)?.reshape(scale.shape())?;
        if at == 0 { Ok(weight) } else { weight.neg() }
    };
    let top = [of_scalar(0)?, of_scalar(1)?, of_scalar(2)?, of_scalar(3)?];
    let mut blocks: Vec<&Tensor> = top.iter().collect();
    for row in &rotation {
        blocks.push(&zero);
        blocks.extend(row);
    }
    of_blocks(&blocks, 4, 4)
}

/// The kernel `[3, out, 3, *taps, in]` that turns vectors by the quaternions `weights` `[4, out, in, *taps]` and scales them by `scale`
/// `[out, in, *taps]`.
///
/// # Errors
/// Shapes that do not fit together.
pub fn g3_kernel(weights: &Tensor, scale: &Tensor) -> Result<Tensor> {
    require("g3_kernel", weights, scale)?;
    let rotation = scaled_rotation(weights, scale)?;
    of_blocks(&rotation.iter().flatten().collect::<Vec<_>>(), 3, 3)
}

/// The kernel `[3, in, 3, *taps, out]` with which [`correlate_transposed`](super::correlate_transposed) scatters vectors turned by the
/// *transposed* rotations, as trained weights expect; from weights `[4, in, out, *taps]` and scales `[in, out, *taps]`.
///
/// # Errors
/// Shapes that do not fit together.
pub fn g3_kernel_transposed(weights: &Tensor, scale: &Tensor) -> Result<Tensor> {
    // Scattering is by the transpose of the kernel's matrix of blades, so the kernel of the rotation itself scatters by its transpose.
    g3_kernel(weights, scale)
}
