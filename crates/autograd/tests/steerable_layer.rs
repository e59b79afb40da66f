//! The fused steerable layer and the fused block on the CPU against the operators that they fuse, and their second derivatives.

use gradewise_autograd::{
    BackwardOptions, Tensor,
    clifford::{self, Bias, MvBlock, Steerable, SteerableLayer},
    grad,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::{Array, Device, ops::clifford::mv_block};
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

/// Operands of a block with a residual, and the cotangent of its output.
fn block(
    algebra: &Algebra,
    [batch, inputs, n]: [usize; 3],
    dtype: DType,
    seed: u64,
) -> (Vec<Tensor>, Tensor) {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let mut random = |shape: &[usize], size: usize| {
        let tensor = Tensor::randn(shape, dtype, &Device::Cpu, &mut rng).unwrap();
        tensor.mul_scalar((size.max(1) as f64).powf(-0.5)).unwrap().detach().requires_grad()
    };
    let operands = vec![
        random(&[blades, batch, inputs], 1),
        random(&[grades, inputs, n], inputs),
        random(&[n], 1),
        random(&[n, grades], 1),
        random(&[n, grades], 1),
        random(&[grades, n, n], n),
        random(&[n, grades], 1),
        random(&[n, paths], 1),
        random(&[grades, n, n], n),
        random(&[n], 1),
        random(&[n], 1),
        random(&[blades, batch, n], 1),
    ];
    (operands, random(&[blades, batch, n], 1).detach())
}

/// The block by its operators.
fn by_operators(algebra: &Algebra, operands: &MvBlock<'_>) -> Tensor {
    let MvBlock { x, linear, silu, right, normalization, product, left, gain, residual } = *operands;
    let y = clifford::mv_linear(algebra, x, linear.0, Some((linear.1, Bias::Scalar))).unwrap();
    let h = clifford::mv_silu(algebra, &y, silu.0, silu.1).unwrap();
    let right = clifford::mv_linear(algebra, &h, right, None).unwrap();
    let left = clifford::mv_linear(algebra, &h, left.0, Some((left.1, Bias::Scalar))).unwrap();
    let operands = Steerable { x: &h, right: &right, a: normalization, w: product, left: Some(&left) };
    let sum = clifford::steerable_product(algebra, &operands).unwrap();
    let output = clifford::mv_layer_norm(algebra, &sum, gain).unwrap();
    residual.map_or_else(|| output.clone(), |residual| residual.add(&output).unwrap())
}

/// The output and the gradients of all operands by either way.
fn both_ways(algebra: &Algebra, all: &[Tensor], seed: &Tensor) -> [Vec<Tensor>; 2] {
    let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
    let operands = mv_block::Operands::from_all(&arrays).unwrap();
    let found = mv_block::forward(algebra, &operands).unwrap();
    let gradients = mv_block::backward(algebra, &operands, &found.kept, seed.array(), true).unwrap();
    let mut block = vec![found.output];
    block.extend(gradients.into_iter().map(Option::unwrap));
    block.extend(operands.residual.map(|_| seed.array().clone()));

    let output = by_operators(algebra, &MvBlock::from_all(all).unwrap());
    let inputs: Vec<&Tensor> = all.iter().collect();
    let gradients = grad(&output, &inputs, &BackwardOptions::seed(seed.clone())).unwrap();
    let parts = std::iter::once(output).chain(gradients.into_iter().map(Option::unwrap)).collect();
    [block.into_iter().map(Tensor::new).collect(), parts]
}

/// Signatures with straight-line products and with interpreted ones; widths from 1 on; one chunk of rows, several, the last with one
/// row, and none.
#[test]
fn a_block_agrees_with_its_operators() {
    let signatures = [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0), (0, 2, 0), (2, 1, 1), (4, 1, 0)];
    let sizes = [[1, 1, 1], [3, 5, 2], [0, 4, 3], [17, 29, 28], [301, 56, 28], [145, 3, 40]];
    for (index, (p, q, r)) in signatures.into_iter().enumerate() {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        for (size, residual) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            let (mut all, seed) = block(&algebra, size, DType::F64, index as u64);
            if !residual {
                all.pop();
            }
            let [found, expected] = both_ways(&algebra, &all, &seed);
            for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.shape(), expected.shape());
                let empty = expected.array().to_f64_vec().unwrap().iter().all(|&value| value == 0.0);
                let error = if empty {
                    found
                        .array()
                        .to_f64_vec()
                        .unwrap()
                        .into_iter()
                        .fold(0.0, |most: f64, value| most.max(value.abs()))
                } else {
                    error(found, expected)
                };
                // Where q(x) of an indefinite metric crosses zero, the norm and still more its derivative magnify rounding; norms over
                // one or two features are nearly constant, and their gradients differences of equal numbers.
                let bound = if q > 0 || size[2] < 3 { 1e-6 } else { 1e-11 };
                assert!(error <= bound, "Cl({p},{q},{r}) {size:?} {residual} {position}: {error:e}");
            }
        }
    }
}

/// The CPU keeps all intermediates, and refuses what a way to run that keeps one of them, and the parameters, would give.
#[test]
fn a_block_refuses_what_another_way_to_run_kept() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (all, seed) = block(&algebra, [5, 3, 4], DType::F32, 6);
    let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
    let operands = mv_block::Operands::from_all(&arrays).unwrap();
    let kept = mv_block::forward(&algebra, &operands).unwrap().kept;
    assert_eq!(kept.arrays().len(), 3);
    let one = mv_block::Kept::from_arrays(&kept.arrays()[..2]).unwrap();
    let error = mv_block::backward(&algebra, &operands, &one, seed.array(), true).unwrap_err().to_string();
    assert!(error.contains("`kept` is 2 arrays"), "{error}");
    assert!(mv_block::Kept::from_arrays(&kept.arrays()[..1]).is_none());
    let again = mv_block::Kept::from_arrays(kept.arrays()).unwrap();
    mv_block::backward(&algebra, &operands, &again, seed.array(), true).unwrap();
}

/// The operator goes by the block from some size on.
#[test]
fn a_block_is_one_operation_where_that_pays() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for (batch, one) in [(100, false), (1200, true)] {
        let (all, _) = block(&algebra, [batch, 29, 28], DType::F32, 4);
        let output = clifford::mv_block(&algebra, &MvBlock::from_all(&all).unwrap()).unwrap();
        let by_parts = by_operators(&algebra, &MvBlock::from_all(&all).unwrap());
        let named = Tensor::operation;
        assert_eq!(named(&output) == named(&by_parts), !one, "{batch}: {:?}", named(&output));
        assert!(error(&output, &by_parts) < 5e-6);
    }
}

#[test]
fn a_block_of_many_chunks_agrees_in_single_precision() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (all, seed) = block(&algebra, [2001, 29, 28], DType::F32, 3);
    let [found, expected] = both_ways(&algebra, &all, &seed);
    for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = error(found, expected);
        assert!(error < 5e-6, "{position}: {error:e}");
    }
    // The same bits whatever the number of threads.
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let [again, _] = single.install(|| both_ways(&algebra, &all, &seed));
    for (found, again) in found.iter().zip(&again) {
        assert_eq!(found.array().to_vec::<f32>().unwrap(), again.array().to_vec::<f32>().unwrap());
    }
}
