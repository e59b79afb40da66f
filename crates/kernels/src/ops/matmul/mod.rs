//! Matrix products of the last two axes, with leading axes broadcast.

mod cpu;
pub(crate) mod cuda;
pub(crate) mod hopper;
pub(crate) mod product;
mod vendor;

use crate::{Array, Device, Error, Result, cpu::element::with_element};
use gradewise_core::{Error as CoreError, Shape};

const NAME: &str = "matmul";

/// The product of the matrices in the last two axes: `[…, m, k]` by `[…, k, n]` gives `[…, m, n]`, with leading axes
/// broadcast together. Either operand's matrices can be transposed first, without a copy.
///
/// # Errors
/// Ranks below 2, inner sizes that differ, leading sizes that do not broadcast, different dtypes or devices.
pub fn matmul(a: &Array, b: &Array, transpose_a: bool, transpose_b: bool) -> Result<Array> {
    b.require_like(a, NAME, "b")?;
    for (argument, array) in [("a", a), ("b", b)] {
        if array.rank() < 2 {
            return Err(shape_error(argument, array, "[…, rows, columns]", "a matrix has two axes"));
        }
    }
    let lead = |array: &Array| Shape::from(&array.dims()[..array.rank() - 2]);
    let batch = lead(a).broadcast(&lead(b), NAME)?;
    // One matrix for every row of `a`: the leading axes are rows of a single product.
    if lead(b).elements() == 1
        && !transpose_a
        && lead(a).elements() > 1
        && a.rank() >= b.rank()
        && a.elements() > 0
    {
        let columns = a.dims()[a.rank() - 1];
        let b = b.reshape(&b.dims()[b.rank() - 2..])?;
        let product = matmul(&a.reshape([a.elements() / columns, columns])?, &b, false, transpose_b)?;
        let mut sizes = a.dims().to_vec();
        sizes[a.rank() - 1] = product.dims()[1];
        return product.reshape(sizes);
    }
    let (left, right) = (Matrices::new(a, transpose_a, &batch)?, Matrices::new(b, transpose_b, &batch)?);
    let ((m, k), (inner, n)) = (left.sizes(), right.sizes());
    if inner != k {
        let expected = if transpose_b { format!("[…, n, {k}]") } else { format!("[…, {k}, n]") };
        return Err(shape_error("b", b, &expected, "the inner sizes of a and b agree"));
    }
    let mut sizes = batch.to_vec();
    sizes.extend([m, n]);
    if let Device::Cuda(device) = a.device() {
        return cuda::product(&device, a.dtype(), &left, &right, &sizes);
    }
    with_element!(a.dtype(), NAME, T => {
        let (a, b) = (left.array.as_slice::<T>()?, right.array.as_slice::<T>()?);
        Array::build::<T>(sizes, &left.array.device(), |out| cpu::product(out, a, &left, b, &right))
    })
}

fn shape_error(argument: &'static str, array: &Array, expected: &str, reason: &str) -> Error {
    CoreError::Shape {
        operation: NAME,
        argument,
        actual: array.shape().clone(),
        expected: expected.to_owned(),
        reason: reason.to_owned(),
    }
    .into()
}

/// The matrices of one operand, contiguous, and for each of the output's matrices the index of its own.
struct Matrices {
    array: Array,
    starts: Vec<usize>,
    rows: usize,
    columns: usize,
    transpose: bool,
}

impl Matrices {
    fn new(array: &Array, transpose: bool, batch: &Shape) -> Result<Self> {
        let rank = array.rank();
        let (lead, matrix) = array.dims().split_at(rank - 2);
        // A transposed view of contiguous data is read without a copy.
        let swapped = array.transpose(rank - 2, rank - 1)?;
        let lies_swapped = !array.is_contiguous() && swapped.is_contiguous();
        let strides = Shape::from(lead).contiguous_strides();
        let step = matrix[0] * matrix[1];
        let skipped = batch.rank() - lead.len();
        let start = |mut index: usize| {
            let mut start = 0;
            for axis in (0..batch.rank()).rev() {
                let position = index % batch[axis];
                index /= batch[axis];
                if axis >= skipped && lead[axis - skipped] != 1 {
                    start += position * strides[axis - skipped] * step;
                }
            }
            start
        };
        let starts = (0..batch.elements()).map(start).collect();
        let (array, rows, columns) = if lies_swapped {
            (swapped, matrix[1], matrix[0])
        } else {
            (array.contiguous()?, matrix[0], matrix[1])
        };
        Ok(Self { array, starts, rows, columns, transpose: transpose != lies_swapped })
    }

    /// Rows and columns as the product sees them.
    fn sizes(&self) -> (usize, usize) {
        if self.transpose { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Array, DType, Device, ops::matmul};
    use proptest::prelude::*;
    use rand::SeedableRng;

    /// The product by its definition, in double precision.
    fn naive(a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
        let mut out = vec![0.0; m * n];
        for row in 0..m {
            for column in 0..n {
                out[row * n + column] = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
            }
        }
        out
    }

    fn random(shape: &[usize], seed: u64) -> Array {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        Array::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap()
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn agrees_with_the_definition_however_the_operands_lie(
            m in 0usize..9, k in 0usize..9, n in 0usize..9, batch in 1usize..4, seed: u64,
        ) {
            let (a, b) = (random(&[batch, m, k], seed), random(&[batch, k, n], seed ^ 1));
            let (a_flat, b_flat) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
            let expected: Vec<f64> = (0..batch)
                .flat_map(|i| naive(&a_flat[i * m * k..][..m * k], &b_flat[i * k * n..][..k * n], (m, k, n)))
                .collect();
            let (at, bt) = (a.transpose(1, 2).unwrap(), b.transpose(1, 2).unwrap());
            let (at_copy, bt_copy) = (at.contiguous().unwrap(), bt.contiguous().unwrap());
            for product in [
                matmul(&a, &b, false, false),
                matmul(&at, &b, true, false),
                matmul(&a, &bt, false, true),
                matmul(&at_copy, &bt_copy, true, true),
            ] {
                let product = product.unwrap();
                prop_assert_eq!(product.dims(), &[batch, m, n]);
                prop_assert!(close(&product.to_vec::<f64>().unwrap(), &expected));
            }
        }

        #[test]
        fn leading_axes_broadcast(a0 in 1usize..4, rows in 1usize..5, seed: u64) {
            let (a, b) = (random(&[a0, 1, rows, 3], seed), random(&[2, 3, 4], seed ^ 1));
            let product = matmul(&a, &b, false, false).unwrap();
            prop_assert_eq!(product.dims(), &[a0, 2, rows, 4]);
            for i in 0..a0 {
                for j in 0..2 {
                    let left = a.slice(0, i..i + 1).unwrap().to_vec::<f64>().unwrap();
                    let right = b.slice(0, j..j + 1).unwrap().to_vec::<f64>().unwrap();
                    let part = product.slice(0, i..i + 1).unwrap().slice(1, j..j + 1).unwrap();
                    prop_assert!(close(&part.to_vec::<f64>().unwrap(), &naive(&left, &right, (rows, 3, 4))));
                }
            }
        }

        #[test]
        fn one_matrix_serves_all_rows(batch in 1usize..5, rows in 1usize..5, seed: u64) {
            let (a, b) = (random(&[batch, rows, 3], seed), random(&[3, 2], seed ^ 1));
            let (a_flat, b_flat) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
            let expected = naive(&a_flat, &b_flat, (batch * rows, 3, 2));
            let product = matmul(&a, &b, false, false).unwrap();
            prop_assert_eq!(product.dims(), &[batch, rows, 2]);
            prop_assert!(close(&product.to_vec::<f64>().unwrap(), &expected));
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let message = |a: &[usize], b: &[usize]| {
            matmul(&random(a, 1), &random(b, 2), false, false).unwrap_err().to_string()
        };
        assert!(message(&[2, 3], &[4, 5]).contains("expected […, 3, n]"));
        assert!(message(&[3], &[3, 5]).contains("`a` has shape [3]"));
        assert!(message(&[2, 2, 3], &[3, 3, 3]).contains("broadcast"));
    }
}
