//! Shape contracts shared by the operators on `[blades, batch, features]`.

use super::{
    rms_norm,
    sgp::{Product, ProductGradients, ProductOptions},
};
use crate::{Array, Error, Result, array::rows::accumulator};
use gradewise_core::{Algebra, DType, Error as CoreError};

/// Checks that `array` is `[blades, batch, features]` of `algebra` and returns (batch, features).
pub(crate) fn features(
    operation: &'static str,
    argument: &'static str,
    algebra: &Algebra,
    array: &Array,
) -> Result<(usize, usize)> {
    let blades = algebra.blade_count();
    match array.shape()[..] {
        [leading, batch, features] if leading == blades => Ok((batch, features)),
        _ => Err(CoreError::Shape {
            operation,
            argument,
            actual: array.shape().clone(),
            expected: format!("[{blades}, batch, features]"),
            reason: format!("{} has {blades} blades, which come first", algebra.signature()),
        }
        .into()),
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

/// Checks that `product` is what the forward pass with these options gives for operands like `x`: `output` is the shape of its output.
/// Otherwise the backward pass would compute a gradient of something else.
pub(crate) fn require_product(
    operation: &'static str,
    algebra: &Algebra,
    product: &Product,
    (x, output): (&Array, &[usize]),
    options: ProductOptions,
) -> Result<()> {
    product.output.require_like(x, operation, "product.output")?;
    exact(operation, "product.output", &product.output, output, || {
        "the product is that of the same operands".to_owned()
    })?;
    const NORMS: &str = "product.inverse_rms";
    match (&product.inverse_rms, options.normalize) {
        (None, false) => Ok(()),
        (Some(inverse_rms), true) => {
            let (actual, expected) = (inverse_rms.dtype(), accumulator(x.dtype()));
            if actual != expected {
                return Err(CoreError::DType { operation, argument: NORMS, actual, expected }.into());
            }
            x.require_beside(&inverse_rms.device(), operation, NORMS)?;
            exact(operation, NORMS, inverse_rms, &[algebra.grade_count(), output[1]], || {
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

/// The product of operands like `x` whose output, of this shape, has no elements: the mean square of nothing is 0.
pub(crate) fn empty_product(
    operation: &'static str,
    algebra: &Algebra,
    (x, output): (&Array, [usize; 3]),
    options: ProductOptions,
) -> Result<Product> {
    let (dtype, device) = (x.dtype(), x.device());
    device.require(dtype, operation)?;
    let norms = [algebra.grade_count(), output[1]];
    let rms = |_| Array::full(norms, rms_norm::EPS.sqrt().recip(), accumulator(dtype), &device);
    let inverse_rms = options.normalize.then_some(()).map(rms).transpose()?;
    Ok(Product { output: Array::zeros(output, dtype, &device)?, inverse_rms })
}

/// Gradients of a product without terms: zeros.
pub(crate) fn empty_gradients((x, w): (&Array, &Array), needs: [bool; 3]) -> Result<ProductGradients> {
    let zeros = |needed: bool, like: &Array| needed.then(|| like.zeros_like()).transpose();
    let [x, y, weights] = [zeros(needs[0], x)?, zeros(needs[1], x)?, zeros(needs[2], w)?];
    Ok(ProductGradients { x, y, weights, bias: None })
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
