//! Rank-2 products of vectors.

use super::Layer;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, clifford::traceless_product};
use gradewise_core::Signature;

/// The symmetric traceless parts of products of linear maps of vectors: `[n, batch, inputs]` to `[n(n+1)/2 − 1, batch, features]`
/// ([`traceless_product`]), in three dimensions the spherical tensors of degree 2, which the geometric product lacks. The maps mix only
/// features, so the layer commutes with every isometry of the metric, reflections and the inversion included.
///
/// Parameters: `left` and `right` `[inputs, features]`, normal with variance 1/inputs.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::Device;
/// use gradewise_nn::layers::{Layer, TracelessProduct};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let layer = TracelessProduct::new(4, 8, Signature::CL3).init(&Device::Cpu, &mut rng)?;
/// let vectors = Tensor::randn([3, 10, 4], DType::F32, &Device::Cpu, &mut rng)?;
/// assert_eq!(layer.forward(&vectors)?.shape().dims(), [5, 10, 8]);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
#[derive(Debug, Module, DeepClone)]
pub struct TracelessProduct {
    #[module(skip)]
    signature: Signature,
    left: Parameter,
    right: Parameter,
}

/// The symmetric traceless part of the product of vectors in space, position by position: `[3, …]` of both to `[5, …]`
/// ([`traceless_product`] in the Euclidean metric).
///
/// # Errors
/// Vectors that differ in shape, dtype or device.
pub fn symmetric_traceless(u: &Tensor, v: &Tensor) -> Result<Tensor> {
    Ok(traceless_product(Signature::CL3, u, v)?)
}

/// Settings of a [`TracelessProduct`] from `inputs` vectors to `features` tensors in the metric of `signature`, none of whose generators
/// squares to 0.
#[derive(Clone, Copy, Debug, Builder)]
pub struct TracelessProductBuilder {
    inputs: usize,
    features: usize,
    signature: Signature,
}

impl TracelessProductBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<TracelessProduct> {
        at_least_one("TracelessProduct", &[("inputs", self.inputs), ("features", self.features)])?;
        let (placement, Self { inputs, features, signature }) = (placement.into(), self);
        let deviation = (inputs.max(1) as f64).sqrt().recip();
        let left = placement.normal([inputs, features], deviation, rng)?;
        let right = placement.normal([inputs, features], deviation, rng)?;
        Ok(TracelessProduct { signature, left, right })
    }
}

impl Layer for TracelessProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("TracelessProduct::forward", x, || {
            let (left, right) = (x.matmul(&self.left.tensor())?, x.matmul(&self.right.tensor())?);
            Ok(traceless_product(self.signature, &left, &right)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symmetry::Isometry;
    use gradewise_kernels::{Array, DType, Device};
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

    /// S(Ru, Rv) = R·S(u, v)·Rᵀ in Euclidean space and in space-time, rotations, boosts, reflections and the inversion included.
    #[test]
    fn commutes_with_the_isometries_of_its_metric() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for (signature, n) in
            [(Signature::CL3, 3), (Signature::new(1, 3, 0), 4), (Signature::new(0, 2, 0), 2)]
        {
            let placement = Placement::new(&Device::Cpu, DType::F64);
            let layer = TracelessProduct::new(3, 2, signature).init(placement, &mut rng).unwrap();
            let x = Tensor::randn([n, 5, 3], DType::F64, &Device::Cpu, &mut rng).unwrap();
            for odd in [false, true] {
                let isometry = Isometry::random(signature, 2 + usize::from(odd), &mut rng).unwrap();
                // The matrix of the isometry, column by column.
                let column = |k: usize| {
                    isometry.apply(&(0..n).map(|i| f64::from(i == k)).collect::<Vec<_>>()).unwrap()
                };
                let columns: Vec<Vec<f64>> = (0..n).map(column).collect();
                let matrix: Vec<f64> = (0..n).flat_map(|i| columns.iter().map(move |c| c[i])).collect();
                let matrix = Array::from_f64(&matrix, [n, n], DType::F64, &Device::Cpu).unwrap();
                let turn = |x: &Tensor| -> Tensor {
                    let flat = x.reshape([n, x.shape().elements() / n]).unwrap();
                    Tensor::new(matrix.clone()).matmul(&flat).unwrap().reshape(x.shape()).unwrap()
                };
                let whole = |s: &Tensor| whole(signature, n, s);
                let moved = whole(&layer.forward(&turn(&x)).unwrap());
                let tensor = whole(&layer.forward(&x).unwrap());
                // R acts on the first axis, then on the second.
                let expected = turn(&turn(&tensor).transpose(0, 1).unwrap().contiguous().unwrap());
                let expected = expected.transpose(0, 1).unwrap();
                let error = moved.array().relative_error(expected.array()).unwrap();
                assert!(error < 1e-12, "{signature}, {odd}: {error:e}");
            }
        }
    }

    /// One vector, or one for each feature, times all of them: values and gradients are those of its copies.
    #[test]
    fn one_vector_broadcasts_over_rows_and_features() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut random = |shape: &[usize]| {
            Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap().requires_grad()
        };
        let many = random(&[3, 4, 2]);
        for one in [random(&[3]), random(&[3, 2]), random(&[3, 1, 2]), random(&[3, 4, 1])] {
            let mut aligned = vec![1; 3];
            aligned[0] = 3;
            let rest = one.shape().rank() - 1;
            aligned[3 - rest..].copy_from_slice(&one.shape()[1..]);
            let copies = one.reshape(aligned).unwrap().broadcast_to(many.shape()).unwrap();
            let copies = copies.contiguous().unwrap();
            let found = symmetric_traceless(&one, &many).unwrap();
            let expected = symmetric_traceless(&copies, &many).unwrap();
            assert_eq!(found.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap());
            let gradient = |s: &Tensor| {
                let gradients = s.square().unwrap().sum_all().unwrap().backward().unwrap();
                gradients.get(&one).unwrap().to_vec::<f64>().unwrap()
            };
            let (found, expected) = (gradient(&found), gradient(&expected));
            assert!(
                found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12),
                "{found:?} {expected:?}"
            );
        }
    }

    /// The full tensor `[n, n, rows·features]`, including the component determined by the trace.
    fn whole(signature: Signature, n: usize, s: &Tensor) -> Tensor {
        let count = s.shape().elements() / s.shape()[0];
        let values = s.to_vec::<f64>().unwrap();
        let metric = |i: usize| if i < usize::from(signature.p) { 1.0 } else { -1.0 };
        let mut whole = vec![0.0; n * n * count];
        let pairs = (0..n).flat_map(|i| (i..n).map(move |j| (i, j))).take(s.shape()[0]);
        for (component, (i, j)) in pairs.enumerate() {
            for at in 0..count {
                let value = values[component * count + at];
                whole[(i * n + j) * count + at] = value;
                whole[(j * n + i) * count + at] = value;
                if i == j {
                    whole[((n - 1) * n + n - 1) * count + at] -= metric(n - 1) * metric(i) * value;
                }
            }
        }
        Tensor::from_slice(&whole, [n, n, count], &Device::Cpu).unwrap()
    }
}
