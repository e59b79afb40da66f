//! The fully connected steerable product layer of the Clifford-group-equivariant networks.

use super::{Bias, ProductOptions, SteerableLayer, fcgp, mv_linear, mv_normalization};
use crate::{Result, Tensor};
use gradewise_core::{Algebra, DType};

/// Operands of [`fc_steerable_layer`]: those of the layer whose product is not fully connected, with weights `[paths, in, out]`.
pub type FullSteerableLayer<'a> = SteerableLayer<'a>;

/// `(mv_linear(x; left, bias) + fcgp(x, mv_normalization(mv_linear(x; right); a), w)) / √2`, or the product alone without
/// `left` (Ruhe et al. 2023, arXiv:2305.11141).
///
/// In 16-bit storage what lies between input and output is kept in `f32`: where an indefinite q(x) crosses zero, the
/// normalisation magnifies the rounding of its argument.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn fc_steerable_layer(algebra: &Algebra, operands: &FullSteerableLayer<'_>) -> Result<Tensor> {
    let dtype = operands.x.dtype();
    if matches!(dtype, DType::F32 | DType::F64) {
        return layer(algebra, operands);
    }
    let wide = |tensor: &Tensor| tensor.cast(DType::F32);
    let FullSteerableLayer { x, right, a, w, left } = *operands;
    let [x, right, a, w] = [wide(x)?, wide(right)?, wide(a)?, wide(w)?];
    let left = left.map(|(left, bias)| Ok::<_, crate::Error>((wide(left)?, wide(bias)?))).transpose()?;
    let left = left.as_ref().map(|(left, bias)| (left, bias));
    layer(algebra, &FullSteerableLayer { x: &x, right: &right, a: &a, w: &w, left })?.cast(dtype)
}

fn layer(algebra: &Algebra, operands: &FullSteerableLayer<'_>) -> Result<Tensor> {
    let FullSteerableLayer { x, right, a, w, left } = *operands;
    let right = mv_normalization(algebra, &mv_linear(algebra, x, right, None)?, a)?;
    let product = fcgp(algebra, x, &right, w, ProductOptions::default())?;
    match left {
        Some((left, bias)) => {
            let left = mv_linear(algebra, x, left, Some((bias, Bias::Scalar)))?;
            left.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)
        }
        None => Ok(product),
    }
}
