//! The inverse Cholesky factor of covariances.

use super::prelude::*;
use gradewise_kernels::ops::fields::inverse_cholesky as kernel;

/// L⁻¹ of matrices `[batch, n, n]`, where L·Lᵀ = ½(Σ + Σᵀ): it turns samples of covariance Σ into samples of covariance 1. Lower
/// triangular, NaN where Σ is not positive definite.
///
/// # Errors
/// Another shape; dtypes that the device does not serve.
pub fn inverse_cholesky(sigma: &Tensor) -> Result<Tensor> {
    Tensor::apply(InverseCholesky { ridge: 0.0 }, &[sigma])
}

#[derive(Serialize, Deserialize)]
pub(crate) struct InverseCholesky {
    /// Added to the diagonal.
    ridge: f64,
}

impl Operation for InverseCholesky {
    const NAME: &'static str = "inverse_cholesky";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        // The ridge makes any normal matrix of these sizes positive definite, with factors of moderate condition.
        let sample = |n: usize, ridge| {
            let input = Input::normal([sizes.batch, n, n]);
            Sample::new(InverseCholesky { ridge }, [input])
        };
        Ok(vec![sample(1, 8.0), sample(2, 12.0), sample(4, 16.0)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::inverse_cholesky(&inputs[0], self.ridge)?.into())
    }

    /// With A = L⁻¹: dA = −Φ(A·dΣ·Aᵀ)·A, where Φ keeps the lower triangle and half of the diagonal. Hence the gradient of Σ is
    /// −Aᵀ·Φ(Ā·Aᵀ)·A, of which the symmetric part is meant.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let sigma = &context.inputs[0];
        let n = sigma.shape()[1];
        let mask: Vec<f64> = (0..n * n)
            .map(|at| match (at / n).cmp(&(at % n)) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            })
            .collect();
        // Computed again, and not taken from the forward pass, so that it has a history.
        let a = Tensor::apply(InverseCholesky { ridge: self.ridge }, &[sigma])?;
        // What is above the diagonal is constant.
        let lower: Vec<f64> = mask.iter().map(|&weight| f64::from(u8::from(weight > 0.0))).collect();
        let grad = grad.mul(&constant(&lower, &[1, n, n], sigma)?)?;
        let middle = grad.matmul_transposed(&a, false, true)?.mul(&constant(&mask, &[1, n, n], sigma)?)?;
        let slope = a.matmul_transposed(&middle.matmul(&a)?, true, false)?;
        Ok(vec![Some(slope.add(&slope.transpose(1, 2)?)?.mul_scalar(-0.5)?)])
    }
}
