//! The weighted product on CUDA.

use super::{
    NAME, Product, ProductGradients, ProductOptions, RightGradient, rows,
    unrolled::{self, Around},
};
use crate::{
    Array, CudaDevice, Result,
    ops::clifford::device::{DeviceAlgebra, gate_backward, gated, rms_norm, rms_norm_backward},
};
use gradewise_core::Algebra;

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
) -> Result<Product> {
    let ProductOptions { gate, normalize } = options;
    if gate
        && normalize
        && let Some((output, inverse_rms)) = rows::forward(device, algebra, (x, y, w))?
    {
        return Ok(Product { output, inverse_rms: Some(inverse_rms) });
    }
    let around = Around { gate, normalize, base: None, scale: 1.0 };
    if let Some((output, inverse_rms)) = unrolled::forward(device, algebra, (x, y, w), around)? {
        return Ok(Product { output, inverse_rms });
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    let (x, y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let output = tables.forward.product(device, NAME, (&x, &y), Some(w), (None, 1.0))?;
    let inverse_rms = options.normalize.then(|| rms_norm(device, NAME, &tables, &output)).transpose()?;
    Ok(Product { output, inverse_rms })
}

pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    (needs, right): ([bool; 3], RightGradient),
) -> Result<ProductGradients> {
    if options.gate
        && options.normalize
        && let Some(gradients) = rows::backward(device, algebra, (x, y, w), grad, (needs, right))?
    {
        return Ok(gradients);
    }
    let output = product.output.contiguous()?;
    let normalized = product.inverse_rms.as_ref().map(|inverse| (&output, inverse));
    let gradients =
        unrolled::backward(device, algebra, (x, y, w), (options.gate, 1.0), normalized, grad, needs)?;
    if let Some([x, y, weights]) = gradients {
        return Ok(ProductGradients { x, y, weights, bias: None });
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    let upstream = match &product.inverse_rms {
        Some(inverse) => rms_norm_backward(device, NAME, &tables, (&output, inverse), grad)?,
        None => grad.clone(),
    };
    let (gated_x, gated_y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let through = |raw: &Array, gradient: Array| -> Result<Array> {
        if options.gate { gate_backward(device, NAME, raw, &gradient) } else { Ok(gradient) }
    };
    let mut gradients = ProductGradients::default();
    if needs[0] {
        let left = tables.grad_left.product(device, NAME, (&upstream, &gated_y), Some(w), (None, 1.0))?;
        gradients.x = Some(through(x, left)?);
    }
    if needs[1] {
        let right = tables.grad_right.product(device, NAME, (&upstream, &gated_x), Some(w), (None, 1.0))?;
        gradients.y = Some(through(y, right)?);
    }
    if needs[2] {
        gradients.weights =
            Some(tables.by_path.weights(device, NAME, (&gated_x, &gated_y), &upstream, 1.0)?);
    }
    Ok(gradients)
}
