//! The steerable product in a learned metric.

use super::{Layer, MvLinear, MvNormalization, mv_linear::Bias};
use crate::{
    DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{Tensor, clifford::metric_sgp};
use gradewise_core::{Algebra, Signature};

/// [`SteerableProduct`](super::SteerableProduct) with the geometric product of a learned diagonal metric, which is initialised to the
/// signature's (metric learning of Ali et al. 2024, PMLR 251, for a diagonal metric).
///
/// **A learned metric is less equivariant than a fixed one.** Products of a metric commute with the isometries of that metric. As soon as
/// the entries differ, those of Cl(3,0) are no longer the rotations, but the isometries of an ellipsoid. Of O(n), only reflections in the
/// coordinate planes and permutations of axes with equal entries remain. The norm within the layer is still that of the signature.
///
/// Parameters: `metric` `[n]`, and those of [`SteerableProduct`](super::SteerableProduct) under their names, `weight` with the grade paths
/// of Cl(n,0).
#[derive(Debug, Module, DeepClone)]
pub struct MetricProduct {
    metric: Parameter,
    weight: Parameter,
    linear_right: MvLinear,
    normalization: MvNormalization,
    linear_left: MvLinear,
}

impl MetricProduct {
    /// For `features` over the algebra of `signature`, which is the initial metric.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        features: usize,
        signature: Signature,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("MetricProduct", &[("features", features)])?;
        let placement = &placement.into();
        let Signature { p, q, r } = signature;
        let euclidean = Algebra::new(Signature::new(p + q + r, 0, 0))?;
        let deviation = (euclidean.grade_count() as f64).sqrt().recip();
        let squares: Vec<f64> = [(p, 1.0), (q, -1.0), (r, 0.0)]
            .into_iter()
            .flat_map(|(count, square)| std::iter::repeat_n(square, usize::from(count)))
            .collect();
        let linear = || MvLinear::new(features, features, signature);
        Ok(Self {
            metric: Parameter::new(placement.tensor(&squares, [squares.len()])?.array().clone()),
            linear_right: linear().bias(None).init(placement, rng)?,
            normalization: MvNormalization::new(features, signature).init(placement)?,
            weight: placement.normal([features, euclidean.paths().len()], deviation, rng)?,
            linear_left: linear().bias(Some(Bias::Scalar)).init(placement, rng)?,
        })
    }

    /// The learned squares of the generators.
    pub fn metric(&self) -> &Parameter {
        &self.metric
    }
}

impl Layer for MetricProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MetricProduct::forward", x, || {
            let right = self.normalization.forward(&self.linear_right.forward(x)?)?;
            let product = metric_sgp(&self.metric.tensor(), x, &right, &self.weight.tensor())?;
            Ok(self.linear_left.forward(x)?.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{layers::SteerableProduct, symmetry::Isometry};
    use gradewise_kernels::{Array, DType, Device};
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

    fn layer(signature: Signature, features: usize) -> (MetricProduct, Placement, ChaCha8Rng) {
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let placement = Placement::new(&Device::Cpu, DType::F64);
        (MetricProduct::init(features, signature, &placement, &mut rng).unwrap(), placement, rng)
    }

    #[test]
    fn before_it_learns_it_is_the_layer_of_its_signature() {
        for signature in [Signature::CL3, Signature::new(1, 3, 0), Signature::new(0, 2, 0)] {
            let (layer, placement, mut rng) = layer(signature, 3);
            let fixed = SteerableProduct::new(3, signature).init(&placement, &mut rng).unwrap();
            let weights = layer.named_parameters();
            let find = |name: &str| {
                weights.iter().find(|(known, _)| known == name).map(|(_, parameter)| parameter.array())
            };
            fixed.load(&|name| Ok(find(name))).unwrap();
            let blades = 1 << signature.dimension();
            let x = Tensor::randn([blades, 7, 3], DType::F64, &Device::Cpu, &mut rng).unwrap();
            let (own, expected) = (layer.forward(&x).unwrap(), fixed.forward(&x).unwrap());
            let error = own.array().relative_error(expected.array()).unwrap();
            assert!(error < 1e-14, "{signature}: {error:e}");
            let loss = own.square().unwrap().sum_all().unwrap();
            let gradients = loss.backward().unwrap();
            let slope = gradients.get(&layer.metric().tensor()).unwrap().to_vec::<f64>().unwrap();
            assert!(slope.iter().all(|&x| x != 0.0), "{slope:?}");
        }
    }

    /// The equivariance error of the layer for an isometry of Euclidean space, on vectors and scalars.
    fn error(layer: &MetricProduct, matrix: impl Fn(&[f64]) -> Vec<f64>, rng: &mut ChaCha8Rng) -> f64 {
        let x = Tensor::randn([3, 5, 2], DType::F64, &Device::Cpu, rng).unwrap().to_vec::<f64>().unwrap();
        let turn = |vectors: &[f64]| -> Vec<f64> {
            let mut out = vec![0.0; vectors.len()];
            for at in 0..10 {
                let image = matrix(&[vectors[at], vectors[10 + at], vectors[20 + at]]);
                (0..3).for_each(|axis| out[10 * axis + at] = image[axis]);
            }
            out
        };
        let predict = |vectors: &[f64]| -> Vec<f64> {
            let whole = [&[0.0; 10][..], vectors, &[0.0; 40]].concat();
            let x = Tensor::new(Array::from_slice(&whole, [8, 5, 2], &Device::Cpu).unwrap());
            layer.forward(&x).unwrap().to_vec::<f64>().unwrap()[..40].to_vec()
        };
        let plain = predict(&x);
        let expected = [&plain[..10], &turn(&plain[10..])].concat();
        crate::symmetry::relative_distance(&predict(&turn(&x)), &expected)
    }

    #[test]
    fn a_learned_metric_keeps_reflections_of_axes_and_rotations_only_while_its_entries_are_equal() {
        let (layer, placement, mut rng) = layer(Signature::CL3, 2);
        let isometry = Isometry::random(Signature::CL3, 2, &mut rng).unwrap();
        let rotate = |v: &[f64]| isometry.apply(v).unwrap();
        let reflect = |v: &[f64]| vec![v[0], -v[1], v[2]];
        for (metric, commutes) in [([1.0; 3], true), ([0.4; 3], true), ([1.2, 0.7, 1.0], false)] {
            layer.metric().set(placement.tensor(&metric, [3]).unwrap().array().clone()).unwrap();
            let (turned, reflected) = (error(&layer, rotate, &mut rng), error(&layer, reflect, &mut rng));
            assert_eq!(turned < 1e-12, commutes, "{metric:?}: {turned:e}");
            assert!(commutes || turned > 1e-2, "{turned:e}");
            assert!(reflected < 1e-12, "{metric:?}: {reflected:e}");
        }
    }
}
