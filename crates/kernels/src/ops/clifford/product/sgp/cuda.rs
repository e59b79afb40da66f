//! The weighted product on CUDA.

use super::{
    NAME, Operands, Product, ProductGradients, ProductOptions, Wanted, fused,
    unrolled::{self, Around, Normalized},
};
use crate::{
    Array, CudaDevice, Result,
    ops::clifford::{
        algebra::device_algebra::{DeviceAlgebra, Terms},
        product::gate_norm::{gate_backward, gated, rms_norm, rms_norm_backward},
    },
};
use gradewise_core::Algebra;

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
) -> Result<Product> {
    let ProductOptions { gate, normalize } = options;
    if gate
        && normalize
        && let Some(product) = fused::forward(device, algebra, operands)?
    {
        return Ok(product);
    }
    let around = Around { gate, normalize, base: None, scale: 1.0 };
    if let Some(product) = unrolled::forward(device, algebra, operands, around)? {
        return Ok(product);
    }
    let Operands { x, y, w } = *operands;
    let tables = DeviceAlgebra::of(device, algebra)?;
    let (x, y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let output = tables.forward.product(device, NAME, &Terms::weighted(&x, &y, w))?;
    let inverse_rms = options.normalize.then(|| rms_norm(device, NAME, &tables, &output)).transpose()?;
    Ok(Product { output, inverse_rms })
}

pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    wanted: Wanted,
) -> Result<ProductGradients> {
    if options.gate
        && options.normalize
        && let Some(gradients) = fused::backward(device, algebra, operands, grad, wanted)?
    {
        return Ok(gradients);
    }
    let output = product.output.contiguous()?;
    let inverse_rms = product.inverse_rms.as_ref().map(Array::contiguous).transpose()?;
    let normalized = inverse_rms.as_ref().map(|inverse_rms| Normalized { output: &output, inverse_rms });
    let ProductOptions { gate, normalize } = options;
    let (around, needs) = (Around { gate, normalize, base: None, scale: 1.0 }, wanted.needs);
    let found = unrolled::backward(device, algebra, operands, around, normalized, grad, needs)?;
    if let Some(gradients) = found {
        return Ok(gradients);
    }
    let Operands { x, y, w } = *operands;
    let tables = DeviceAlgebra::of(device, algebra)?;
    let upstream = match &inverse_rms {
        Some(inverse) => rms_norm_backward(device, NAME, &tables, &output, inverse, grad)?,
        None => grad.clone(),
    };
    let (gated_x, gated_y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let through = |raw: &Array, gradient: Array| -> Result<Array> {
        if options.gate { gate_backward(device, NAME, raw, &gradient) } else { Ok(gradient) }
    };
    let mut gradients = ProductGradients::default();
    if needs.x {
        let left = tables.grad_left.product(device, NAME, &Terms::weighted(&upstream, &gated_y, w))?;
        gradients.x = Some(through(x, left)?);
    }
    if needs.y {
        let right = tables.grad_right.product(device, NAME, &Terms::weighted(&upstream, &gated_x, w))?;
        gradients.y = Some(through(y, right)?);
    }
    if needs.w {
        gradients.w = Some(tables.by_path.weights(device, NAME, &gated_x, &gated_y, &upstream, 1.0)?);
    }
    Ok(gradients)
}
