//! The weighted ("steerable") geometric product, bare and fused with gate and norm.
//!
//! `sgp(x, y, w)`: `out_j = Σ sign·w[:, path]·x_i·y_k` over the terms (i, k → j) of the algebra, with `x`, `y` and
//! the result `[blades, batch, features]` and `w` `[features, paths]`. [`ProductOptions`] adds the gate
//! x·Φ(x₀) on both operands and the RMS norm on the result: with both, this is `gelu_sgp_norm`.

pub(crate) mod cpu;
mod cuda;
mod four_lanes;
mod fused;
mod persistent;
mod shares;
mod sm90;
pub(crate) mod unrolled;

use crate::ops::clifford::{
    algebra::{
        contract::{Planes, alike, exact, paths_reason, with_real},
        program::Programs,
    },
    pointwise::rms_norm::Normalized,
    product::weighted::{empty_gradients, empty_product, require_product},
};
use crate::{Array, Device, Result};
use gradewise_core::Algebra;

pub use super::weighted::{Needs, Operands, Product, ProductGradients, ProductOptions};
pub(crate) use super::weighted::{RightGradient, Wanted};

/// Applied to an operand before it is multiplied.
#[derive(Clone, Copy)]
pub(crate) enum Prologue<'a, T> {
    None,
    /// x·Φ(x₀).
    Gate,
    /// mv_normalization with `a` `[features, grades]`.
    Normalize(&'a [T]),
}

/// Applied to the product before it is stored.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue<'a, T> {
    None,
    /// The RMS norm; its backward pass needs what the forward pass made.
    RmsNorm(Option<Normalized<'a, T>>),
    /// (base + product)·scale; `base` has the shape of the product.
    Residual {
        base: &'a [T],
        scale: T,
    },
    /// (what the output holds + product)·scale.
    AddTo {
        scale: T,
    },
}

const NAME: &str = "sgp";

fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<Planes> {
    let Operands { x, y, w } = *operands;
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    exact(NAME, "y", y, x.shape(), || "both operands have one shape".to_owned())?;
    let n = planes.features;
    exact(NAME, "w", w, &[n, algebra.paths().len()], || {
        format!("{} and {n} features", paths_reason(algebra))
    })?;
    Ok(planes)
}

fn prologue<'a, T>(options: ProductOptions) -> Prologue<'a, T> {
    if options.gate { Prologue::Gate } else { Prologue::None }
}

/// The weighted product of the operands.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>, options: ProductOptions) -> Result<Product> {
    let planes = check(algebra, operands)?;
    let Operands { x, y, w } = *operands;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w)])?;
    if x.elements() == 0 {
        return empty_product(NAME, algebra, x, planes, options);
    }
    let (x, y, w) = (x.contiguous()?, y.contiguous()?, w.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, algebra, &Operands { x: &x, y: &y, w: &w }, options);
    }
    let Planes { rows: batch, features, .. } = planes;
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let operands = cpu::Operands {
            tables: &tables,
            batch,
            features,
            x: x.as_slice::<T>()?,
            y: y.as_slice::<T>()?,
            weights: w.as_slice::<T>()?,
            left: prologue(options),
            right: prologue(options),
            epilogue: if options.normalize { Epilogue::RmsNorm(None) } else { Epilogue::None },
        };
        let mut inverse_rms = Vec::new();
        let output = Array::build::<T>(x.shape(), &x.device(), |out| {
            inverse_rms = cpu::forward(&operands, out);
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
    let wanted = Wanted { needs, right: RightGradient::Contiguous };
    backward_with(algebra, operands, options, product, grad, wanted)
}

/// As [`backward`], with the layout of the gradient of y from `wanted`.
pub(crate) fn backward_with(
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    wanted: Wanted,
) -> Result<ProductGradients> {
    let planes = check(algebra, operands)?;
    let (Operands { x, y, w }, needs) = (*operands, wanted.needs);
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w), ("grad", grad)])?;
    require_product(NAME, algebra, x, product, planes, options)?;
    if x.elements() == 0 {
        return empty_gradients(operands, needs);
    }
    let (x, y, w, grad) = (x.contiguous()?, y.contiguous()?, w.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        let operands = Operands { x: &x, y: &y, w: &w };
        return cuda::backward(&device, algebra, &operands, options, product, &grad, wanted);
    }
    let Planes { rows: batch, features, .. } = planes;
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let output = product.output.contiguous()?;
        let inverse_rms = product.inverse_rms.as_ref().map(Array::contiguous).transpose()?;
        let normalized = match &inverse_rms {
            Some(inverse_rms) => Some(Normalized {
                output: output.as_slice::<T>()?,
                inverse_rms: inverse_rms.as_slice::<T>()?,
                batch,
                features,
            }),
            None => None,
        };
        let operands = cpu::Operands {
            tables: &tables,
            batch,
            features,
            x: x.as_slice::<T>()?,
            y: y.as_slice::<T>()?,
            weights: w.as_slice::<T>()?,
            left: prologue(options),
            right: prologue(options),
            epilogue: if options.normalize { Epilogue::RmsNorm(normalized) } else { Epilogue::None },
        };
        let (grads, parameters) = run_backward(&operands, &x, grad.as_slice::<T>()?, needs)?;
        let [x, y] = grads;
        let w = if needs.w { Some(Array::from_vec(parameters.weights, w.shape(), &w.device())?) } else { None };
        Ok(ProductGradients { x, y, w, bias: None })
    })
}

/// Allocates the operand gradients that are asked for and runs the backward pass into them.
pub(crate) fn run_backward<T: crate::cpu::simd::Real>(
    operands: &cpu::Operands<'_, T>,
    like: &Array,
    grad: &[T],
    needs: Needs,
) -> Result<([Option<Array>; 2], cpu::ParameterGradients<T>)> {
    let allocate =
        |wanted: bool| wanted.then(|| Array::build::<T>(like.shape(), &like.device(), |_| {})).transpose();
    let (mut grad_x, mut grad_y) = (allocate(needs.x)?, allocate(needs.y)?);
    let slice_x = grad_x.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
    let slice_y = grad_y.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
    let parameters = cpu::backward(operands, grad, needs, slice_x, slice_y);
    Ok(([grad_x, grad_y], parameters))
}
