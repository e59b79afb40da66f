//! Shape contracts shared by the operators on `[blades, batch, features]`.

use super::{
    rms_norm,
    sgp::{Needs, Operands, Product, ProductGradients, ProductOptions},
};
use crate::{Array, Error, Result};
use gradewise_core::{Algebra, DType, Error as CoreError};

/// The sizes of an array of multivectors, `[blades, rows, features]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Planes {
    pub blades: usize,
    pub rows: usize,
    pub features: usize,
}

impl Planes {
    /// The sizes of an array that an operator has checked or made.
    ///
    /// # Errors
    /// An array of other than three axes.
    pub fn of(operation: &'static str, array: &Array) -> Result<Self> {
        match *array.dims() {
            [blades, rows, features] => Ok(Self { blades, rows, features }),
            _ => Err(CoreError::Shape {
                operation,
                argument: "x",
                actual: array.shape().clone(),
                expected: "[blades, batch, features]".to_owned(),
                reason: "operators on multivectors take three axes".to_owned(),
            }
            .into()),
        }
    }

    /// The sizes of `array`, which must have the blades of `algebra`.
    ///
    /// # Errors
    /// Another shape, on behalf of `argument` of `operation`.
    pub fn checked(
        operation: &'static str,
        argument: &'static str,
        algebra: &Algebra,
        array: &Array,
    ) -> Result<Self> {
        let expected = algebra.blade_count();
        match *array.dims() {
            [blades, rows, features] if blades == expected => Ok(Self { blades, rows, features }),
            _ => Err(CoreError::Shape {
                operation,
                argument,
                actual: array.shape().clone(),
                expected: format!("[{expected}, batch, features]"),
                reason: format!("{} has {expected} blades, which come first", algebra.signature()),
            }
            .into()),
        }
    }

    /// Elements of one blade.
    pub const fn plane(self) -> usize {
        self.rows * self.features
    }

    /// As the shape of an array.
    pub const fn shape(self) -> [usize; 3] {
        [self.blades, self.rows, self.features]
    }
}

/// Checks one array against a fully known shape.
pub(crate) fn exact(
    operation: &'static str,
    argument: &'static str,
    array: &Array,
    expected: &[usize],
    reason: impl FnOnce() -> String,
) -> Result<()> {
    if array.shape()[..] == *expected {
        return Ok(());
    }
    Err(CoreError::Shape {
        operation,
        argument,
        actual: array.shape().clone(),
        expected: gradewise_core::Shape::from(expected).to_string(),
        reason: reason(),
    }
    .into())
}

/// Checks that every named array has the dtype and the device of the first.
pub(crate) fn alike(operation: &'static str, arrays: &[(&'static str, &Array)]) -> Result<DType> {
    let Some((_, first)) = arrays.first() else {
        return Ok(DType::F32);
    };
    for (argument, array) in arrays {
        array.require_like(first, operation, argument)?;
    }
    Ok(first.dtype())
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

/// "20 grade paths of Cl(3,0,0)": the reason behind a weight's shape.
pub(crate) fn paths_reason(algebra: &Algebra) -> String {
    format!("one weight for each of the {} grade paths of {}", algebra.paths().len(), algebra.signature())
}

/// "4 grades of Cl(3,0,0)": the reason behind a parameter's shape.
pub(crate) fn grades_reason(algebra: &Algebra) -> String {
    format!("one entry for each of the {} grades of {}", algebra.grade_count(), algebra.signature())
}

pub(crate) use crate::element::with_element as with_real;
