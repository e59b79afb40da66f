//! The fully connected geometric product, bare and fused with gate and norm.
//!
//! `fcgp(x, y, w)`: `out_j = Σ_paths (Σ ±x_i·y_k)·w[path]` with `x`, `y` `[blades, batch, in]`, `w`
//! `[paths, in, out]` and the result `[blades, batch, out]`: in Cl(3,0), 44 products of `batch × in` by `in × out`.
//! With gate and norm this is `gelu_fcgp_norm`.

pub(crate) mod cpu;
mod cuda;
mod pairs;

use super::weighted::{
    Needs, Operands, Product, ProductGradients, ProductOptions, empty_gradients, empty_product,
    require_product,
};
use crate::ops::clifford::{
    algebra::{
        contract::{Planes, alike, exact, paths_reason, with_real},
        program::Programs,
    },
    pointwise::rms_norm::{self, Normalized},
};
use crate::{Array, Device, Result};
use gradewise_core::{Algebra, Error as CoreError};
use std::borrow::Cow;

const NAME: &str = "fcgp";

struct Sizes {
    batch: usize,
    inputs: usize,
    outputs: usize,
}

fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<Sizes> {
    let Operands { x, y, w } = *operands;
    let Planes { rows: batch, features: inputs, .. } = Planes::checked(NAME, "x", algebra, x)?;
    exact(NAME, "y", y, x.shape(), || "both operands have one shape".to_owned())?;
    let paths = algebra.paths().len();
    match w.shape()[..] {
        [p, n, outputs] if p == paths && n == inputs => Ok(Sizes { batch, inputs, outputs }),
        _ => Err(CoreError::Shape {
            operation: NAME,
            argument: "w",
            actual: w.shape().clone(),
            expected: format!("[{paths}, {inputs}, out]"),
            reason: paths_reason(algebra),
        }
        .into()),
    }
}

/// The operands after the gate, borrowed where there is none.
fn gated<'a, T: crate::cpu::simd::Real>(
    algebra: &Algebra,
    options: ProductOptions,
    x: &'a [T],
) -> Cow<'a, [T]> {
    if options.gate { Cow::Owned(cpu::gate(algebra.blade_count(), x)) } else { Cow::Borrowed(x) }
}

/// The fully connected product of the operands.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>, options: ProductOptions) -> Result<Product> {
    let Sizes { batch, inputs, outputs } = check(algebra, operands)?;
    let Operands { x, y, w } = *operands;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w)])?;
    if batch * outputs == 0 {
        let planes = Planes { blades: algebra.blade_count(), rows: batch, features: outputs };
        return empty_product(NAME, algebra, x, planes, options);
    }
    let (x, y, w) = (x.contiguous()?, y.contiguous()?, w.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, algebra, &Operands { x: &x, y: &y, w: &w }, options);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let gated_x = gated::<T>(algebra, options, x.as_slice()?);
        let gated_y = gated::<T>(algebra, options, y.as_slice()?);
        let operands = cpu::Operands {
            tables: &tables, batch, inputs, outputs, x: &gated_x, y: &gated_y, weights: w.as_slice::<T>()?,
        };
        let mut inverse_rms = Vec::new();
        let shape = [algebra.blade_count(), batch, outputs];
        let output = Array::build::<T>(shape, &x.device(), |out| {
            inverse_rms = cpu::forward(&operands, options.normalize, out);
        })?;
        let inverse_rms = if options.normalize {
            Some(Array::from_vec(inverse_rms, [algebra.grade_count(), batch], &x.device())?)
        } else {
            None
        };
        Ok(Product { output, inverse_rms })
    })
}

/// Gradients of [`forward`] for the cotangent `grad` of its output, those that `needs` selects. `product` is the result of [`forward`] for
/// the same operands and options.
///
/// # Errors
/// As [`forward`]; a `product` of other shapes, or of another `normalize`.
pub fn backward(
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    needs: Needs,
) -> Result<ProductGradients> {
    let Sizes { batch, inputs, outputs } = check(algebra, operands)?;
    let Operands { x, y, w } = *operands;
    let output = Planes { blades: algebra.blade_count(), rows: batch, features: outputs };
    exact(NAME, "grad", grad, &output.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w), ("grad", grad)])?;
    require_product(NAME, algebra, x, product, output, options)?;
    if batch * inputs * outputs == 0 {
        return empty_gradients(operands, needs);
    }
    let (x, y, w, grad) = (x.contiguous()?, y.contiguous()?, w.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        let operands = Operands { x: &x, y: &y, w: &w };
        return cuda::backward(&device, algebra, &operands, options, product, &grad, needs);
    }
    let tables = Programs::of(algebra);
    let blades = algebra.blade_count();
    with_real!(dtype, NAME, T => {
        let (raw_x, raw_y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
        let (gated_x, gated_y) = (gated(algebra, options, raw_x), gated(algebra, options, raw_y));
        let operands = cpu::Operands {
            tables: &tables, batch, inputs, outputs, x: &gated_x, y: &gated_y, weights: w.as_slice::<T>()?,
        };
        let output = product.output.contiguous()?;
        let inverse_rms = product.inverse_rms.as_ref().map(Array::contiguous).transpose()?;
        let upstream = match &inverse_rms {
            Some(inverse_rms) => {
                let normalized = Normalized {
                    output: output.as_slice::<T>()?,
                    inverse_rms: inverse_rms.as_slice::<T>()?,
                    batch,
                    features: outputs,
                };
                Cow::Owned(rms_norm::gradient(&tables, &normalized, grad.as_slice::<T>()?))
            }
            None => Cow::Borrowed(grad.as_slice::<T>()?),
        };
        let both = needs.x || needs.y;
        let allocate = || both.then(|| Array::build::<T>(x.shape(), &x.device(), |_| {})).transpose();
        let (mut grad_x, mut grad_y) = (allocate()?, allocate()?);
        let slice_x = grad_x.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
        let slice_y = grad_y.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
        let weights = cpu::backward(&operands, &upstream, needs.w, slice_x, slice_y);
        if options.gate && both {
            cpu::gate_gradient(blades, raw_x, slice_x);
            cpu::gate_gradient(blades, raw_y, slice_y);
        }
        Ok(ProductGradients {
            x: grad_x.filter(|_| needs.x),
            y: grad_y.filter(|_| needs.y),
            w: if needs.w { Some(Array::from_vec(weights, w.shape(), &w.device())?) } else { None },
            bias: None,
        })
    })
}
