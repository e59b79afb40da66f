//! The fused steerable layer against the operators it fuses, and its second derivative.

use gradewise_autograd::{
    BackwardOptions, Tensor,
    clifford::{self, Bias, Steerable, SteerableLayer},
    grad,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::Device;
use proptest::prelude::*;
use rand::SeedableRng;

struct Case {
    algebra: Algebra,
    inputs: Vec<Tensor>,
    seed: Tensor,
}

impl Case {
    fn new(signature: Signature, batch: usize, features: usize, dtype: DType, seed: u64) -> Self {
        let algebra = Algebra::new(signature).unwrap();
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let (blades, grades, n) = (algebra.blade_count(), algebra.grade_count(), features);
        let mut random =
            |shape: &[usize]| Tensor::randn(shape, dtype, &Device::Cpu, &mut rng).unwrap().requires_grad();
        let inputs = vec![
            random(&[blades, batch, n]),
            random(&[grades, n, n]),
            random(&[n, grades]),
            random(&[n, algebra.paths().len()]),
            random(&[grades, n, n]),
            random(&[n]),
        ];
        let seed = random(&[blades, batch, n]).detach();
        Self { algebra, inputs, seed }
    }

    fn fused(&self, left: bool) -> Tensor {
        let [x, right, a, w, matrices, bias] = &self.inputs[..] else { unreachable!() };
        let left = left.then_some((matrices, bias));
        clifford::steerable_layer(&self.algebra, &SteerableLayer { x, right, a, w, left }).unwrap()
    }

    fn composed(&self, left: bool) -> Tensor {
        let [x, right, a, w, matrices, bias] = &self.inputs[..] else { unreachable!() };
        let right = clifford::mv_linear(&self.algebra, x, right, None).unwrap();
        let left = left
            .then(|| clifford::mv_linear(&self.algebra, x, matrices, Some((bias, Bias::Scalar))).unwrap());
        let operands = Steerable { x, right: &right, a, w, left: left.as_ref() };
        clifford::steerable_product(&self.algebra, &operands).unwrap()
    }

    fn gradients(&self, output: &Tensor, left: bool) -> Vec<Tensor> {
        let used = if left { 6 } else { 4 };
        let inputs: Vec<&Tensor> = self.inputs[..used].iter().collect();
        let options = BackwardOptions::seed(self.seed.clone());
        grad(output, &inputs, &options).unwrap().into_iter().map(Option::unwrap).collect()
    }
}

fn error(a: &Tensor, b: &Tensor) -> f64 {
    a.array().relative_error(b.array()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_the_operators_it_fuses(
        which in 0usize..6, batch in 0usize..40, features in 1usize..20, left: bool, seed: u64,
    ) {
        let signature = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (2, 0, 1), (0, 2, 0), (3, 1, 1)][which];
        let case = Case::new(Signature::new(signature.0, signature.1, signature.2), batch, features, DType::F64, seed);
        let (fused, composed) = (case.fused(left), case.composed(left));
        // Where q(x) of an indefinite metric crosses zero, the norm and still more its derivative magnify rounding.
        prop_assert!(batch == 0 || error(&fused, &composed) < 1e-10, "{:?}", error(&fused, &composed));
        for (a, b) in case.gradients(&fused, left).iter().zip(case.gradients(&composed, left)) {
            prop_assert_eq!(a.shape(), b.shape());
            prop_assert!(batch == 0 || error(a, &b) < 1e-6, "{:?}", error(a, &b));
        }
    }
}

#[test]
fn many_chunks_agree_in_single_precision() {
    let case = Case::new(Signature::CL3, 700, 28, DType::F32, 5);
    let (fused, composed) = (case.fused(true), case.composed(true));
    assert!(error(&fused, &composed) < 1e-6);
    for (a, b) in case.gradients(&fused, true).iter().zip(case.gradients(&composed, true)) {
        assert!(error(a, &b) < 2e-6, "{}", error(a, &b));
    }
}

#[test]
fn second_derivatives_are_those_of_the_operators() {
    let case = Case::new(Signature::CL3, 3, 2, DType::F64, 7);
    let second = |output: Tensor| {
        let x = &case.inputs[0];
        let options = BackwardOptions { seed: Some(case.seed.clone()), create_graph: true };
        let first = grad(&output, &[x], &options).unwrap().remove(0).unwrap();
        let all: Vec<&Tensor> = case.inputs.iter().collect();
        let energy = first.square().unwrap().sum_all().unwrap();
        grad(&energy, &all, &BackwardOptions::default()).unwrap()
    };
    for (a, b) in second(case.fused(true)).into_iter().zip(second(case.composed(true))) {
        match (a, b) {
            (Some(a), Some(b)) => assert!(error(&a, &b) < 1e-10),
            (a, b) => assert_eq!(a.is_some(), b.is_some()),
        }
    }
}
