//! The weighted product with gates and norm by one of the kernels that read and write each row once.

use super::{NAME, Operands, Product, ProductGradients, RightGradient, Wanted, four_lanes, persistent, sm90};
use crate::{
    Array, CudaDevice, Result, array::rows::sum_partials, ops::clifford::algebra::contract::Planes,
    runtime::cuda::Args,
};
use gradewise_core::Algebra;

/// norm(gate(x)·gate(y)) and 1/rms; `None` where these kernels do not serve.
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
) -> Result<Option<Product>> {
    let Operands { x, y, w } = *operands;
    let arrays = [x, y, w];
    let mut found = four_lanes::launch(device, algebra, &arrays, false)?;
    if found.is_none() {
        found = sm90::launch(device, algebra, &arrays, false)?;
    }
    if found.is_none() {
        found = persistent::launch(device, algebra, &arrays, persistent::Pass::Forward)?;
    }
    let Some(launch) = found else { return Ok(None) };
    let Planes { rows, features, .. } = Planes::of(NAME, x)?;
    let dtype = x.dtype();
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let inverse = Array::for_kernel(NAME, [algebra.grade_count(), rows], dtype.accumulator(), device)?;
    let args = Args::new().array(x).array(y).array(w).array(&out).array(&inverse);
    // SAFETY: the operator's entry compared x, y and w with the algebra and made them contiguous; the launch was found for them, and the
    // results are new.
    unsafe { launch.queue(device, args, rows, features)? };
    Ok(Some(Product { output: out, inverse_rms: Some(inverse) }))
}

/// The requested gradients of x, y and w, and with w's that of a bias; `None` as for [`forward`]. Reads neither the output nor 1/rms: the
/// kernel recomputes both from the operands.
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    grad: &Array,
    wanted: Wanted,
) -> Result<Option<ProductGradients>> {
    let (Operands { x, y, w }, Wanted { needs, right }) = (*operands, wanted);
    let arrays = [x, y, w, grad];
    let turned = right == RightGradient::Transposed && needs.y;
    let mut found =
        if turned { persistent::launch(device, algebra, &arrays, persistent::Pass::Turned)? } else { None };
    if found.is_none() {
        found = four_lanes::launch(device, algebra, &arrays, true)?;
    }
    if found.is_none() {
        found = sm90::launch(device, algebra, &arrays, true)?;
    }
    if found.is_none() {
        found = persistent::launch(device, algebra, &arrays, persistent::Pass::Backward)?;
    }
    let Some(launch) = found else { return Ok(None) };
    let dtype = x.dtype();
    let Planes { blades, rows, features } = Planes::of(NAME, x)?;
    let shape = [blades, rows, features];
    let shape_y = if launch.turned { [blades, features, rows] } else { shape };
    let new = |shape| Array::for_kernel(NAME, shape, dtype, device);
    let grad_x = needs.x.then(|| new(shape)).transpose()?;
    let grad_y = needs.y.then(|| new(shape_y)).transpose()?;
    // The gradient of the weights and, starting at a multiple of 4, that of the bias.
    let weights = w.elements();
    let count = weights.next_multiple_of(4) + features;
    let partials = needs
        .w
        .then(|| Array::for_kernel(NAME, [launch.blocks, count], dtype.accumulator(), device))
        .transpose()?;
    let args = Args::new()
        .array(x)
        .array(y)
        .array(w)
        .array(grad)
        .optional(grad_x.as_ref())
        .optional(grad_y.as_ref())
        .optional(partials.as_ref());
    // SAFETY: as in the forward pass, with a gradient of the shape of x; each block has partial sums of its own.
    unsafe { launch.queue(device, args, rows, features)? };
    let grad_y = match grad_y {
        Some(transposed) if launch.turned => Some(transposed.transpose(1, 2)?),
        grad_y => grad_y,
    };
    let mut gradients = ProductGradients { x: grad_x, y: grad_y, ..ProductGradients::default() };
    if let Some(partials) = partials {
        let sums = sum_partials(device, NAME, &partials, [count], dtype, 1.0)?;
        gradients.w = Some(sums.slice(0, 0..weights)?.reshape(w.shape())?);
        gradients.bias = Some(sums.slice(0, count - features..count)?);
    }
    Ok(Some(gradients))
}
