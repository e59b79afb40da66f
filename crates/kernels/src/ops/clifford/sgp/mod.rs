//! The weighted ("steerable") geometric product, bare and fused with gate and norm.
//!
//! `sgp(x, y, w)`: `out_j = Σ sign·w[:, path]·x_i·y_k` over the terms (i, k → j) of the algebra, with `x`, `y` and
//! the result `[blades, batch, features]` and `w` `[features, paths]`. [`ProductOptions`] adds the gate
//! x·Φ(x₀) on both operands and the RMS norm on the result: with both, this is `gelu_sgp_norm`.

pub(crate) mod cpu;
mod cuda;
mod hopper;
mod rows;
pub(super) mod unrolled;

use super::{
    contract::{
        alike, empty_gradients, empty_product, exact, features, paths_reason, require_product, with_real,
    },
    program::Programs,
    rms_norm::Normalized,
};
use crate::{Array, Device, Result};
use gradewise_core::Algebra;

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

/// What is fused with a weighted product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProductOptions {
    /// Gate both operands by Φ of their scalar part.
    pub gate: bool,
    /// RMS-normalise the result per batch row and grade.
    pub normalize: bool,
}

/// A product and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct Product {
    /// `[blades, batch, features]`
    pub output: Array,
    /// 1/rms `[grades, batch]`, if normalised.
    pub inverse_rms: Option<Array>,
}

/// Gradients of a product; those not asked for are `None`.
#[derive(Clone, Debug, Default)]
pub struct ProductGradients {
    /// Of the left operand.
    pub x: Option<Array>,
    /// Of the right operand.
    pub y: Option<Array>,
    /// Of the weights.
    pub weights: Option<Array>,
    /// Of a bias `[features]` of the right operand's scalar part: the sum of that part of its gradient over the batch. Only with
    /// the weights', and where the kernel forms it on the way.
    pub bias: Option<Array>,
}

/// How the gradient of the right operand may lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RightGradient {
    /// As the operand.
    Contiguous,
    /// As a transposed view of `[blades, features, batch]`, if a kernel writes that at once: for a reader to whom both are the same.
    Transposed,
}

const NAME: &str = "sgp";

fn check(algebra: &Algebra, x: &Array, y: &Array, w: &Array) -> Result<(usize, usize)> {
    let (batch, n) = features(NAME, "x", algebra, x)?;
    exact(NAME, "y", y, x.shape(), || "both operands have one shape".to_owned())?;
    exact(NAME, "w", w, &[n, algebra.paths().len()], || {
        format!("{} and {n} features", paths_reason(algebra))
    })?;
    Ok((batch, n))
}

fn prologue<'a, T>(options: ProductOptions) -> Prologue<'a, T> {
    if options.gate { Prologue::Gate } else { Prologue::None }
}

/// The weighted product of `x` and `y` `[blades, batch, features]` with weights `w` `[features, paths]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(
    algebra: &Algebra,
    x: &Array,
    y: &Array,
    w: &Array,
    options: ProductOptions,
) -> Result<Product> {
    let (batch, n) = check(algebra, x, y, w)?;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w)])?;
    if x.elements() == 0 {
        return empty_product(NAME, algebra, (x, [algebra.blade_count(), batch, n]), options);
    }
    let (x, y, w) = (x.contiguous()?, y.contiguous()?, w.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, algebra, (&x, &y, &w), options);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let operands = cpu::Operands {
            tables: &tables,
            batch,
            features: n,
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

/// Gradients of [`forward`] for the cotangent `grad` of its output; `needs` says which of x, y and w to compute. `product` is what
/// [`forward`] gave for the same operands and options.
///
/// # Errors
/// As [`forward`]; a `product` of other shapes, or of another `normalize`.
pub fn backward(
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    needs: [bool; 3],
) -> Result<ProductGradients> {
    backward_with(algebra, (x, y, w), options, product, grad, (needs, RightGradient::Contiguous))
}

/// As [`backward`], with the gradient of y as `right` says.
pub(super) fn backward_with(
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
    product: &Product,
    grad: &Array,
    (needs, right): ([bool; 3], RightGradient),
) -> Result<ProductGradients> {
    let (batch, n) = check(algebra, x, y, w)?;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("y", y), ("w", w), ("grad", grad)])?;
    require_product(NAME, algebra, product, (x, x.dims()), options)?;
    if x.elements() == 0 {
        return empty_gradients((x, w), needs);
    }
    let (x, y, w, grad) = (x.contiguous()?, y.contiguous()?, w.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::backward(&device, algebra, (&x, &y, &w), options, product, &grad, (needs, right));
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let output = product.output.contiguous()?;
        let inverse_rms = product.inverse_rms.as_ref().map(Array::contiguous).transpose()?;
        let normalized = match &inverse_rms {
            Some(inverse_rms) => Some(Normalized {
                output: output.as_slice::<T>()?,
                inverse_rms: inverse_rms.as_slice::<T>()?,
                batch,
                features: n,
            }),
            None => None,
        };
        let operands = cpu::Operands {
            tables: &tables,
            batch,
            features: n,
            x: x.as_slice::<T>()?,
            y: y.as_slice::<T>()?,
            weights: w.as_slice::<T>()?,
            left: prologue(options),
            right: prologue(options),
            epilogue: if options.normalize { Epilogue::RmsNorm(normalized) } else { Epilogue::None },
        };
        let (grads, parameters) = run_backward(&operands, &x, grad.as_slice::<T>()?, needs)?;
        let [x, y] = grads;
        let weights = if needs[2] { Some(Array::from_vec(parameters.weights, w.shape(), &w.device())?) } else { None };
        Ok(ProductGradients { x, y, weights, bias: None })
    })
}

/// Allocates the operand gradients that are asked for and runs the backward pass into them.
pub(crate) fn run_backward<T: crate::simd::Real>(
    operands: &cpu::Operands<'_, T>,
    like: &Array,
    grad: &[T],
    [need_x, need_y, need_weights]: [bool; 3],
) -> Result<([Option<Array>; 2], cpu::ParameterGradients<T>)> {
    let allocate =
        |wanted: bool| wanted.then(|| Array::build::<T>(like.shape(), &like.device(), |_| {})).transpose();
    let (mut grad_x, mut grad_y) = (allocate(need_x)?, allocate(need_y)?);
    let needs = cpu::Needs { x: need_x, y: need_y, weights: need_weights };
    let slice_x = grad_x.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
    let slice_y = grad_y.as_mut().map_or(Ok(&mut [][..]), |array| array.as_mut_slice::<T>())?;
    let parameters = cpu::backward(operands, grad, needs, slice_x, slice_y);
    Ok(([grad_x, grad_y], parameters))
}
