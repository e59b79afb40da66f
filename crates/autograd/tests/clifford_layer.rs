//! The Clifford layer as one operator against the operators it joins, and its second derivative.

use gradewise_autograd::{
    BackwardOptions, Tensor,
    clifford::{self, Bias, CliffordLayer, LayerOptions, ProductOptions},
    grad,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::Device;
use proptest::prelude::*;
use rand::SeedableRng;

struct Case {
    algebra: Algebra,
    options: LayerOptions,
    bias: Option<Bias>,
    /// x, the matrices, the product weights and the bias.
    inputs: Vec<Tensor>,
    seed: Tensor,
}

impl Case {
    fn new(
        signature: Signature,
        (batch, n): (usize, usize),
        options: LayerOptions,
        bias: Option<Bias>,
        seed: u64,
    ) -> Self {
        let algebra = Algebra::new(signature).unwrap();
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
        let mut random = |shape: &[usize]| {
            Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap().requires_grad()
        };
        let w: &[usize] = if options.fully_connected { &[paths, n, n] } else { &[n, paths] };
        let inputs = vec![random(&[blades, batch, n]), random(&[grades, n, n]), random(w), random(&[n])];
        let seed = random(&[blades, batch, n]).detach();
        Self { algebra, options, bias, inputs, seed }
    }

    fn bias(&self) -> Option<(&Tensor, Bias)> {
        self.bias.map(|bias| (&self.inputs[3], bias))
    }

    fn joined(&self) -> Tensor {
        let [x, linear, w, _] = &self.inputs[..] else { unreachable!() };
        let operands = CliffordLayer { x, linear, bias: self.bias(), w };
        clifford::clifford_layer(&self.algebra, &operands, self.options).unwrap()
    }

    fn composed(&self) -> Tensor {
        let [x, linear, w, _] = &self.inputs[..] else { unreachable!() };
        let y = clifford::mv_linear(&self.algebra, x, linear, self.bias()).unwrap();
        let product = if self.options.fully_connected { clifford::fcgp } else { clifford::sgp };
        product(&self.algebra, x, &y, w, self.options.product).unwrap()
    }

    fn used(&self) -> Vec<&Tensor> {
        self.inputs[..if self.bias.is_some() { 4 } else { 3 }].iter().collect()
    }

    fn gradients(&self, output: &Tensor) -> Vec<Tensor> {
        let options = BackwardOptions::seed(self.seed.clone());
        grad(output, &self.used(), &options).unwrap().into_iter().map(Option::unwrap).collect()
    }
}

fn error(a: &Tensor, b: &Tensor) -> f64 {
    a.array().relative_error(b.array()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_operators_it_joins(
        which in 0usize..5, batch in 1usize..20, features in 1usize..12, seed: u64,
        fully_connected: bool, recompute: bool, gate: bool, normalize: bool, biased in 0usize..3,
    ) {
        let (p, q, r) = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (2, 0, 1), (0, 2, 0)][which];
        let product = ProductOptions { gate, normalize };
        let options = LayerOptions { fully_connected, product, recompute };
        let bias = [None, Some(Bias::Scalar), Some(Bias::AllBlades)][biased];
        let case = Case::new(Signature::new(p, q, r), (batch, features), options, bias, seed);
        let (joined, composed) = (case.joined(), case.composed());
        prop_assert!(error(&joined, &composed) < 1e-12);
        for (a, b) in case.gradients(&joined).iter().zip(case.gradients(&composed)) {
            prop_assert_eq!(a.shape(), b.shape());
            // A norm over one feature leaves a gradient of little but rounding.
            prop_assert!(error(a, &b) < 1e-9, "{:?}", error(a, &b));
        }
    }
}

#[test]
fn second_derivatives_are_those_of_the_operators() {
    for recompute in [false, true] {
        let product = ProductOptions { gate: true, normalize: true };
        let options = LayerOptions { fully_connected: recompute, product, recompute };
        let case = Case::new(Signature::CL3, (3, 2), options, Some(Bias::Scalar), 7);
        let second = |output: Tensor| {
            let options = BackwardOptions { seed: Some(case.seed.clone()), create_graph: true };
            let first = grad(&output, &[&case.inputs[0]], &options).unwrap().remove(0).unwrap();
            let energy = first.square().unwrap().sum_all().unwrap();
            grad(&energy, &case.used(), &BackwardOptions::default()).unwrap()
        };
        for (a, b) in second(case.joined()).into_iter().zip(second(case.composed())) {
            match (a, b) {
                (Some(a), Some(b)) => assert!(error(&a, &b) < 1e-9),
                (a, b) => assert_eq!(a.is_some(), b.is_some()),
            }
        }
    }
}
