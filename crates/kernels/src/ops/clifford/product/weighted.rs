//! What weighted products are called with and give, and what must hold of it.

use crate::{
    Array, Error, Result,
    ops::clifford::{
        algebra::contract::{Planes, exact, grades_reason},
        pointwise::rms_norm,
    },
};
use gradewise_core::{Algebra, Error as CoreError};

/// Operands of a weighted product: of [`sgp`](super::sgp), or of the fully connected one ([`fcgp`](super::fcgp)).
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The left factor `[blades, batch, features]`.
    pub x: &'a Array,
    /// The right factor, of the same shape.
    pub y: &'a Array,
    /// The weights `[features, paths]`; `[paths, features, out]` if the product is fully connected.
    pub w: &'a Array,
}

/// Which gradients of a product to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// That of the left factor.
    pub x: bool,
    /// That of the right factor.
    pub y: bool,
    /// That of the weights.
    pub w: bool,
}

impl Needs {
    /// All of them.
    pub const ALL: Self = Self { x: true, y: true, w: true };
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
    pub w: Option<Array>,
    /// Of a bias `[features]` of the right operand's scalar part: the sum of that part of its gradient over the batch. Only together with
    /// that of the weights, and only if the kernel computes it as a by-product.
    pub bias: Option<Array>,
}

/// The memory layout of the gradient of the right operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RightGradient {
    /// That of the operand.
    Contiguous,
    /// May be a transposed view of `[blades, features, batch]` if the kernel writes that layout directly; for readers that accept both.
    Transposed,
}

/// The gradients to compute, and the layout of that of y.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub needs: Needs,
    pub right: RightGradient,
}

/// Checks that `product` is the result of the forward pass with these options for operands like `x`, whose output has the sizes `output`.
/// With another product the backward pass would compute the gradient of another function.
pub(crate) fn require_product(
    operation: &'static str,
    algebra: &Algebra,
    x: &Array,
    product: &Product,
    output: Planes,
    options: ProductOptions,
) -> Result<()> {
    product.output.require_like(x, operation, "product.output")?;
    exact(operation, "product.output", &product.output, &output.shape(), || {
        "the product is that of the same operands".to_owned()
    })?;
    const NORMS: &str = "product.inverse_rms";
    match (&product.inverse_rms, options.normalize) {
        (None, false) => Ok(()),
        (Some(inverse_rms), true) => {
            let (actual, expected) = (inverse_rms.dtype(), x.dtype().accumulator());
            if actual != expected {
                return Err(CoreError::DType { operation, argument: NORMS, actual, expected }.into());
            }
            x.require_beside(&inverse_rms.device(), operation, NORMS)?;
            exact(operation, NORMS, inverse_rms, &[algebra.grade_count(), output.rows], || {
                grades_reason(algebra)
            })
        }
        (found, _) => {
            let actual = if found.is_some() { "those of a normalised product" } else { "none" }.to_owned();
            let expected = "those of a forward pass with the same `normalize`";
            Err(Error::Argument { operation, argument: NORMS, actual, expected })
        }
    }
}

/// The product of operands like `x` with an empty output of these sizes: the mean square of no elements is 0.
pub(crate) fn empty_product(
    operation: &'static str,
    algebra: &Algebra,
    x: &Array,
    output: Planes,
    options: ProductOptions,
) -> Result<Product> {
    let (dtype, device) = (x.dtype(), x.device());
    device.require(dtype, operation)?;
    let norms = [algebra.grade_count(), output.rows];
    let rms = |_| Array::full(norms, rms_norm::EPS.sqrt().recip(), dtype.accumulator(), &device);
    let inverse_rms = options.normalize.then_some(()).map(rms).transpose()?;
    Ok(Product { output: Array::zeros(output.shape(), dtype, &device)?, inverse_rms })
}

/// Gradients of a product without terms: zeros.
pub(crate) fn empty_gradients(operands: &Operands<'_>, needs: Needs) -> Result<ProductGradients> {
    let zeros = |needed: bool, like: &Array| needed.then(|| like.zeros_like()).transpose();
    let Operands { x, y, w } = *operands;
    Ok(ProductGradients { x: zeros(needs.x, x)?, y: zeros(needs.y, y)?, w: zeros(needs.w, w)?, bias: None })
}
