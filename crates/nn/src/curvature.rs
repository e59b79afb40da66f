//! Second derivatives of an energy along a direction.

use crate::{Error, Result};
use gradewise_autograd::{BackwardOptions, Tensor, grad};

/// The product of the Hessian of `energy` at `at` with a `direction` of the same shape, `H·v = ∇(∇E·v)`: the derivative of the gradient of
/// the gradient's component along the direction, by going backward through the backward pass (Pearlmutter 1994). It costs the time of a few
/// gradients and, unlike the full Hessian, no more memory than they do. `energy` returns a scalar, computed by operators that have second
/// derivatives, as all operators of this project do.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::Device;
/// use gradewise_nn::curvature::hessian_vector_product;
///
/// // E = x²y: the Hessian is (2y, 2x; 2x, 0).
/// let at = Tensor::from_slice(&[3.0, 5.0], [2], &Device::Cpu)?;
/// let direction = Tensor::from_slice(&[1.0, 0.0], [2], &Device::Cpu)?;
/// let energy = |x: &Tensor| Ok(x.slice(0, 0..1)?.square()?.mul(&x.slice(0, 1..2)?)?.sum_all()?);
/// let product = hessian_vector_product(&at, &direction, energy)?;
/// assert_eq!(product.to_vec::<f64>()?, [10.0, 6.0]);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a direction of another shape, or an energy that does not depend on its argument; those of `energy`.
pub fn hessian_vector_product(
    at: &Tensor,
    direction: &Tensor,
    energy: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    const OPERATION: &str = "hessian_vector_product";
    if direction.shape() != at.shape() {
        return Err(Error::Argument {
            operation: OPERATION,
            argument: "direction",
            actual: direction.shape().to_string(),
            expected: format!("{}, the shape of the point", at.shape()),
        });
    }
    let at = at.detach().requires_grad();
    let slope_of = |output: &Tensor, create_graph: bool| {
        let options = BackwardOptions { create_graph, ..BackwardOptions::default() };
        Ok::<_, Error>(grad(output, &[&at], &options)?.into_iter().next().flatten())
    };
    let Some(slope) = slope_of(&energy(&at)?, true)? else {
        return Err(Error::Argument {
            operation: OPERATION,
            argument: "energy",
            actual: "a constant".to_owned(),
            expected: "a function of the point, computed with gradients on".to_owned(),
        });
    };
    let along = slope.mul(&direction.detach())?.sum_all()?;
    // A directional derivative that does not depend on the point belongs to a linear function, whose Hessian is zero.
    match along.is_grad_required() {
        false => zeros(&at),
        true => slope_of(&along, false)?.map_or_else(|| zeros(&at), Ok),
    }
}

/// The Hessian of `energy` at `at`, `n × n` row-major for a point of `n` numbers, made symmetric. It takes `n` Hessian-vector products.
///
/// # Errors
/// As [`hessian_vector_product`].
pub fn hessian(at: &Tensor, energy: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let count = at.shape().elements();
    let mut rows = Vec::with_capacity(count * count);
    for index in 0..count {
        let unit: Vec<f64> = (0..count).map(|k| f64::from(u8::from(k == index))).collect();
        let unit = gradewise_kernels::Array::from_f64(&unit, at.shape(), at.dtype(), &at.device())?;
        rows.extend(hessian_vector_product(at, &Tensor::new(unit), &energy)?.array().to_f64_vec()?);
    }
    let symmetric = |k: usize| (rows[k] + rows[k % count * count + k / count]) / 2.0;
    Ok((0..count * count).map(symmetric).collect())
}

fn zeros(like: &Tensor) -> Result<Tensor> {
    Ok(Tensor::zeros(like.shape(), like.dtype(), &like.device())?)
}
