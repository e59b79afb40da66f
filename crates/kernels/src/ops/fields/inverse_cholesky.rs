//! The inverse of the Cholesky factor, which whitens: with L·Lᵀ = Σ, L⁻¹ turns samples of covariance Σ into samples of covariance 1.

use crate::ops::clifford::algebra::contract::with_real;
use crate::{
    Array, DType, Device, Element, Error, Result,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Error as CoreError;

const NAME: &str = "inverse_cholesky";
/// The largest matrices: those of multivectors with as many blades.
const LARGEST: usize = 256;

/// L⁻¹ of the matrices `[batch, n, n]`, lower triangular with zeros above, where L·Lᵀ = ½(Σ + Σᵀ) + ridge·1. NaN where that is not
/// positive definite.
///
/// # Errors
/// Another shape, a matrix of more than 256 rows, a dtype that the device does not serve.
pub fn inverse_cholesky(sigma: &Array, ridge: f64) -> Result<Array> {
    let &[batch, n, columns] = sigma.dims() else { return Err(shape(sigma)) };
    if n != columns || n > LARGEST {
        return Err(shape(sigma));
    }
    let sigma = sigma.contiguous()?;
    if let Device::Cuda(device) = sigma.device() {
        // The factor is kept in the memory of the result: in 16 bits its rounding would be magnified.
        if sigma.dtype().is_short() {
            return inverse_cholesky(&sigma.cast(DType::F32)?, ridge)?.cast(sigma.dtype());
        }
        let out = Array::for_kernel(NAME, sigma.shape(), sigma.dtype(), &device)?;
        if out.elements() > 0 {
            let args = Args::new().array(&sigma).array(&out).size(batch).size(n).double(ridge);
            // SAFETY: 1: `batch` contiguous matrices of n times n, and `out` as large. 2: `out` is new. 3: linear, a thread for a matrix;
            // the kernel strides.
            unsafe {
                device.launch(
                    NAME,
                    Kernel::new("inverse_cholesky", sigma.dtype()),
                    Grid::linear(batch),
                    args,
                )?
            };
        }
        return Ok(out);
    }
    if !ridge.is_finite() {
        let (actual, expected) = (ridge.to_string(), "a finite number");
        return Err(Error::Argument { operation: NAME, argument: "ridge", actual, expected });
    }
    with_real!(sigma.dtype(), NAME, T => {
        let values = sigma.as_slice::<T>()?;
        Array::build::<T>(sigma.shape(), &Device::Cpu, |out| {
            let mut factor = vec![0.0; n * n];
            for (matrix, out) in values.chunks_exact((n * n).max(1)).zip(out.chunks_exact_mut((n * n).max(1))) {
                of_matrix(matrix, ridge, n, &mut factor, out);
            }
        })
    })
}

fn shape(sigma: &Array) -> Error {
    CoreError::Shape {
        operation: NAME,
        argument: "sigma",
        actual: sigma.shape().clone(),
        expected: format!("[batch, n, n], n at most {LARGEST}"),
        reason: "covariances are square".to_owned(),
    }
    .into()
}

/// One matrix, in double precision: small matrices cost nothing, and covariances are ill conditioned.
fn of_matrix<T: Element>(sigma: &[T], ridge: f64, n: usize, factor: &mut [f64], out: &mut [T]) {
    for row in 0..n {
        for column in 0..=row {
            let mean = 0.5 * (sigma[row * n + column].widen() + sigma[column * n + row].widen());
            let dot: f64 = (0..column).map(|k| factor[row * n + k] * factor[column * n + k]).sum();
            let left = if row == column { mean + ridge - dot } else { mean - dot };
            factor[row * n + column] =
                if row == column { left.sqrt() } else { left / factor[column * n + column] };
        }
    }
    // The inverse in place of L, row by row: (L⁻¹)_rc = −Σ_k L_rk (L⁻¹)_kc / L_rr.
    for row in 0..n {
        let diagonal = factor[row * n + row];
        for column in 0..row {
            let dot: f64 = (column..row).map(|k| factor[row * n + k] * factor[k * n + column]).sum();
            // Later columns of this row read L from their own column on, so that this one may be overwritten.
            factor[row * n + column] = -dot / diagonal;
            out[row * n + column] = T::narrow(-dot / diagonal);
        }
        factor[row * n + row] = 1.0 / diagonal;
        out[row * n + row] = T::narrow(1.0 / diagonal);
        out[row * n + row + 1..(row + 1) * n].fill(T::zero());
    }
}

#[cfg(test)]
mod tests {
    use super::inverse_cholesky;
    use crate::{Array, DType, Device, ops};
    use rand::SeedableRng;

    #[test]
    fn the_factor_whitens() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for n in [1, 2, 4, 8, 16] {
            let a = Array::randn([5, n, n], DType::F64, &Device::Cpu, &mut rng).unwrap();
            let sigma = ops::matmul(&a, &a, false, true).unwrap();
            let inverse = inverse_cholesky(&sigma, 0.5).unwrap();
            let ridge: Vec<f64> =
                (0..n * n).map(|at| if at.is_multiple_of(n + 1) { 0.5 } else { 0.0 }).collect();
            let sigma = ops::add(&sigma, &Array::from_f64(&ridge, [n, n], DType::F64, &Device::Cpu).unwrap())
                .unwrap();
            let white =
                ops::matmul(&ops::matmul(&inverse, &sigma, false, false).unwrap(), &inverse, false, true)
                    .unwrap();
            for (at, (white, inverse)) in
                white.to_f64_vec().unwrap().iter().zip(inverse.to_f64_vec().unwrap()).enumerate()
            {
                let (row, column) = (at / n % n, at % n);
                assert!(
                    (white - f64::from(u8::from(row == column))).abs() < 1e-9,
                    "{white} at {row},{column}"
                );
                assert!(column <= row || inverse == 0.0);
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_nan_and_what_is_not_square_refused() {
        let negative = Array::from_f64(&[-1.0], [1, 1, 1], DType::F64, &Device::Cpu).unwrap();
        assert!(inverse_cholesky(&negative, 0.0).unwrap().item().unwrap().is_nan());
        let error =
            inverse_cholesky(&Array::zeros([2, 3, 4], DType::F64, &Device::Cpu).unwrap(), 0.0).unwrap_err();
        assert!(error.to_string().contains("[batch, n, n]"));
    }
}
