//! Clifford operators on the GPU against the CPU in double precision, forward and backward, in every dtype: algebras with
//! kernels of their own and others, sizes around the edges.

mod common;

use common::{Pair, gpu, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device,
    ops::clifford::{
        fcgp, mv_layer_norm, mv_linear, mv_normalization, mv_silu,
        sgp::{self, ProductOptions},
        steerable_gp, steerable_layer, table_product,
    },
};
use rand_chacha::ChaCha8Rng;

const SIGNATURES: [(u8, u8, u8); 10] = [
    (2, 0, 0),
    (3, 0, 0),
    (1, 3, 0),
    (3, 0, 1),
    (4, 1, 0),
    (5, 0, 0),
    (0, 1, 0),
    (1, 1, 1),
    (0, 0, 2),
    (6, 0, 0),
];
const SIZES: [(usize, usize); 8] = [(0, 3), (1, 1), (3, 2), (17, 5), (2, 28), (65, 33), (5, 130), (130, 4)];

struct Case<'a> {
    algebra: Algebra,
    device: &'a Device,
    dtype: DType,
    batch: usize,
    features: usize,
    rng: ChaCha8Rng,
}

impl Case<'_> {
    fn random(&mut self, shape: &[usize]) -> Pair {
        Pair::randn(shape, self.dtype, self.device, &mut self.rng)
    }

    fn x(&mut self, features: usize) -> Pair {
        let shape = [self.algebra.blade_count(), self.batch, features];
        self.random(&shape)
    }

    fn name(&self) -> String {
        format!("{} {} {}x{}", self.algebra.signature(), self.dtype, self.batch, self.features)
    }

    /// Compares results, in the order in which both were computed. `slack` is how much more than the dtype's own error the
    /// operator's conditioning allows.
    fn close(&self, what: &str, tested: &[&Array], reference: &[&Array], slack: f64) {
        assert_eq!(tested.len(), reference.len());
        for (position, (tested, reference)) in tested.iter().zip(reference).enumerate() {
            let context = format!("{what}, result {position}, {}", self.name());
            assert_eq!(tested.shape(), reference.shape(), "{context}");
            assert_eq!(tested.device(), *self.device, "{context}");
            if reference.elements() == 0 {
                continue;
            }
            let wide = tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
            let error = wide.relative_error(reference).unwrap();
            let bound = (slack * tolerance(self.dtype)).min(0.5);
            assert!(error <= bound, "{context}: relative error {error:e} > {bound:e}");
        }
    }
}

/// Whether 16 bits are too few: a gradient that is a difference of nearly equal numbers, or one near the singular points of
/// an indefinite norm, which may be beyond the largest number of 16 bits.
fn is_hopeless(case: &Case<'_>, norm_over_few: bool) -> bool {
    let indefinite = case.algebra.signature().q > 0 || case.algebra.signature().r > 0;
    matches!(case.dtype, DType::F16 | DType::BF16) && (indefinite || (norm_over_few && case.features < 8))
}

fn for_cases(slow: bool, test: impl Fn(&mut Case<'_>)) {
    let Some(device) = gpu() else { return };
    for (p, q, r) in SIGNATURES {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        if slow && algebra.blade_count() > 32 {
            continue;
        }
        for dtype in DType::ALL {
            for (seed, (batch, features)) in SIZES.into_iter().enumerate() {
                let (algebra, rng) = (algebra.clone(), rng(seed as u64));
                test(&mut Case { algebra, device: &device, dtype, batch, features, rng });
            }
        }
    }
}

/// Conditioning of what divides by norms: mild if the form is definite, and singular where an indefinite one vanishes.
fn slack(algebra: &Algebra) -> f64 {
    if algebra.signature().q > 0 || algebra.signature().r > 0 { 1e5 } else { 30.0 }
}

#[test]
fn weighted_products_bare_gated_and_normalised() {
    for_cases(false, |case| {
        for (gate, normalize) in [(false, false), (true, true), (true, false)] {
            let options = ProductOptions { gate, normalize };
            if normalize && is_hopeless(case, true) {
                continue;
            }
            let (x, y, grad) = (case.x(case.features), case.x(case.features), case.x(case.features));
            let w = case.random(&[case.features, case.algebra.paths().len()]);
            let run = |[x, y, w, grad]: [&Array; 4]| {
                let product = sgp::forward(&case.algebra, x, y, w, options).unwrap();
                let found =
                    sgp::backward(&case.algebra, (x, y, w), options, &product, grad, [true; 3]).unwrap();
                [product.output, found.x.unwrap(), found.y.unwrap(), found.weights.unwrap()]
            };
            let tested = run([&x.tested, &y.tested, &w.tested, &grad.tested]);
            let expected = run([&x.reference, &y.reference, &w.reference, &grad.reference]);
            // A norm over few elements is nearly constant, and its gradient a difference of nearly equal numbers.
            let few = if case.features < 8 { 1e4 } else { 100.0 };
            let slack = if normalize { few } else { 4.0 };
            case.close(&format!("sgp {options:?}"), &tested.each_ref(), &expected.each_ref(), slack);
        }
    });
}

#[test]
fn fully_connected_products() {
    for_cases(true, |case| {
        for (gate, normalize) in [(false, false), (true, true)] {
            let options = ProductOptions { gate, normalize };
            if normalize && is_hopeless(case, true) {
                continue;
            }
            let outputs = case.features.div_ceil(2) + 1;
            let (x, y, grad) = (case.x(case.features), case.x(case.features), case.x(outputs));
            let w = case.random(&[case.algebra.paths().len(), case.features, outputs]);
            let run = |[x, y, w, grad]: [&Array; 4]| {
                let product = fcgp::forward(&case.algebra, x, y, w, options).unwrap();
                let found =
                    fcgp::backward(&case.algebra, (x, y, w), options, &product, grad, [true; 3]).unwrap();
                [product.output, found.x.unwrap(), found.y.unwrap(), found.weights.unwrap()]
            };
            let tested = run([&x.tested, &y.tested, &w.tested, &grad.tested]);
            let expected = run([&x.reference, &y.reference, &w.reference, &grad.reference]);
            let few = if case.features < 8 { 1e4 } else { 100.0 };
            let slack = if normalize { few } else { 10.0 };
            case.close(&format!("fcgp {options:?}"), &tested.each_ref(), &expected.each_ref(), slack);
        }
    });
}

/// Batches longer than the stretches of rows that are computed at a time, whichever gradients are asked for.
#[test]
fn fully_connected_products_of_many_rows() {
    let Some(device) = gpu() else { return };
    for (seed, (dtype, signature)) in
        [(DType::F32, Signature::CL3), (DType::BF16, Signature::CL3), (DType::F32, Signature::new(0, 3, 0))]
            .into_iter()
            .enumerate()
    {
        let (batch, features, outputs) = if dtype == DType::F32 { (4637, 256, 40) } else { (4637, 512, 24) };
        let algebra = Algebra::new(signature).unwrap();
        let rng = rng(seed as u64);
        let mut case = Case { algebra, device: &device, dtype, batch, features, rng };
        let (x, y, grad) = (case.x(features), case.x(features), case.x(outputs));
        let w = case.random(&[case.algebra.paths().len(), features, outputs]);
        let run = |[x, y, w, grad]: [&Array; 4], needs: [bool; 3]| {
            let options = ProductOptions { gate: true, normalize: true };
            let product = fcgp::forward(&case.algebra, x, y, w, options).unwrap();
            let found = fcgp::backward(&case.algebra, (x, y, w), options, &product, grad, needs).unwrap();
            [Some(product.output), found.x, found.y, found.weights]
        };
        let expected = run([&x.reference, &y.reference, &w.reference, &grad.reference], [true; 3]);
        for needs in [[true; 3], [false, false, true], [true, false, true], [false, true, false]] {
            let tested = run([&x.tested, &y.tested, &w.tested, &grad.tested], needs);
            assert_eq!(tested[1..].iter().map(Option::is_some).collect::<Vec<_>>(), needs);
            for (tested, expected) in tested.iter().zip(&expected) {
                if let (Some(tested), Some(expected)) = (tested, expected) {
                    case.close(&format!("fcgp of many rows, {needs:?}"), &[tested], &[expected], 20.0);
                }
            }
        }
    }
}

#[test]
fn linear_maps_per_grade_and_shared() {
    for_cases(false, |case| {
        for (shared, bias) in [(false, mv_linear::Bias::Scalar), (true, mv_linear::Bias::AllBlades)] {
            let outputs = case.features + 3;
            let (x, grad) = (case.x(case.features), case.x(outputs));
            let mut shape = vec![case.algebra.grade_count(), case.features, outputs];
            if shared {
                shape.remove(0);
            }
            let (w, b) = (case.random(&shape), case.random(&[outputs]));
            let run = |[x, w, b, grad]: [&Array; 4]| {
                let out = mv_linear::forward(&case.algebra, x, w, Some((b, bias))).unwrap();
                let found = mv_linear::backward(&case.algebra, x, w, bias, grad, [true; 3]).unwrap();
                [out, found.x.unwrap(), found.w.unwrap(), found.bias.unwrap()]
            };
            let tested = run([&x.tested, &w.tested, &b.tested, &grad.tested]);
            let expected = run([&x.reference, &w.reference, &b.reference, &grad.reference]);
            case.close("mv_linear", &tested.each_ref(), &expected.each_ref(), 4.0);
        }
    });
}

#[test]
fn gates_and_norms_of_the_equivariant_layers() {
    for_cases(false, |case| {
        if is_hopeless(case, false) {
            return;
        }
        let (x, grad) = (case.x(case.features), case.x(case.features));
        let per_grade = [case.features, case.algebra.grade_count()];
        let (a, b, gain) = (case.random(&per_grade), case.random(&per_grade), case.random(&[case.features]));
        let run = |[x, a, b, gain, grad]: [&Array; 5]| {
            let algebra = &case.algebra;
            let silu = mv_silu::backward(algebra, x, a, b, grad).unwrap();
            let normalization = mv_normalization::backward(algebra, x, a, grad).unwrap();
            let layer = mv_layer_norm::backward(algebra, x, gain, grad).unwrap();
            let smooth = vec![mv_silu::forward(algebra, x, a, b).unwrap(), silu.x, silu.a, silu.b];
            let singular = vec![
                mv_normalization::forward(algebra, x, a).unwrap(),
                normalization.x,
                normalization.a,
                mv_layer_norm::forward(algebra, x, gain).unwrap(),
                layer.x,
                layer.a,
            ];
            [smooth, singular]
        };
        let tested = run([&x.tested, &a.tested, &b.tested, &gain.tested, &grad.tested]);
        let expected = run([&x.reference, &a.reference, &b.reference, &gain.reference, &grad.reference]);
        for ((what, slack), (tested, expected)) in [("mv_silu", 300.0), ("norms", slack(&case.algebra))]
            .into_iter()
            .zip(tested.iter().zip(&expected))
        {
            let all = |arrays: &'_ [Array]| -> Vec<Array> { arrays.to_vec() };
            let (tested, expected) = (all(tested), all(expected));
            case.close(what, &tested.iter().collect::<Vec<_>>(), &expected.iter().collect::<Vec<_>>(), slack);
        }
    });
}

#[test]
fn steerable_products_and_layers() {
    for_cases(false, |case| {
        if is_hopeless(case, false) {
            return;
        }
        let (x, right, left, grad) =
            (case.x(case.features), case.x(case.features), case.x(case.features), case.x(case.features));
        let n = case.features;
        let matrices = [case.algebra.grade_count(), n, n];
        let (m, l, bias) = (case.random(&matrices), case.random(&matrices), case.random(&[n]));
        let (a, w) = (case.random(&[n, matrices[0]]), case.random(&[n, case.algebra.paths().len()]));
        let tested_side = |pair: &Pair| pair.tested.clone();
        let reference_side = |pair: &Pair| pair.reference.clone();
        let run = |side: &dyn Fn(&Pair) -> Array| -> Vec<Array> {
            let [x, right, left, grad] = [&x, &right, &left, &grad].map(side);
            let [m, l, bias, a, w] = [&m, &l, &bias, &a, &w].map(side);
            let operands = steerable_gp::Operands { x: &x, right: &right, a: &a, w: &w, left: Some(&left) };
            let mut found = vec![steerable_gp::forward(&case.algebra, &operands).unwrap()];
            let g = steerable_gp::backward(&case.algebra, &operands, &grad, [true; 3]).unwrap();
            found.extend([g.x, g.right, g.a, g.w, g.left].map(Option::unwrap));
            let operands =
                steerable_layer::Operands { x: &x, right: &m, a: &a, w: &w, left: Some((&l, &bias)) };
            found.push(steerable_layer::forward(&case.algebra, &operands).unwrap());
            let g = steerable_layer::backward(&case.algebra, &operands, &grad).unwrap();
            let (left, bias) = g.left.unwrap();
            found.extend([g.x, g.right, g.a, g.w, left, bias]);
            found
        };
        let (tested, expected) = (run(&tested_side), run(&reference_side));
        let slack = slack(&case.algebra);
        case.close(
            "steerable",
            &tested.iter().collect::<Vec<_>>(),
            &expected.iter().collect::<Vec<_>>(),
            slack,
        );
    });
}

#[test]
fn products_by_a_table_and_their_gradients() {
    for_cases(false, |case| {
        let table = table_product::Table::geometric(&case.algebra);
        let (x, y, grad) = (case.x(case.features), case.x(case.features), case.x(case.features));
        for (table, a, b) in
            [(table.clone(), &x, &y), (table.grad_a(), &grad, &y), (table.grad_b(), &grad, &x)]
        {
            let tested = table_product::forward(&table, &a.tested, &b.tested).unwrap();
            let expected = table_product::forward(&table, &a.reference, &b.reference).unwrap();
            case.close("table_product", &[&tested], &[&expected], 2.0);
        }
    });
}

#[test]
fn the_same_inputs_give_the_same_bits() {
    let Some(device) = gpu() else { return };
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let mut rng = rng(11);
    let options = ProductOptions { gate: true, normalize: true };
    let mut random = |shape: &[usize]| Array::randn(shape, DType::F32, &device, &mut rng).unwrap();
    let (x, y, w) = (random(&[8, 1000, 96]), random(&[8, 1000, 96]), random(&[96, 20]));
    let grad = random(&[8, 1000, 96]);
    let run = || {
        let product = sgp::forward(&algebra, &x, &y, &w, options).unwrap();
        let found = sgp::backward(&algebra, (&x, &y, &w), options, &product, &grad, [true; 3]).unwrap();
        [product.output, found.x.unwrap(), found.y.unwrap(), found.weights.unwrap()]
            .map(|array| array.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let first = run();
    for _ in 0..5 {
        assert_eq!(run(), first);
    }
}
