//! Clifford operators on the GPU against the CPU in double precision, forward and backward, in every dtype: algebras with
//! kernels of their own and others, sizes around the edges.

mod common;

use common::{Pair, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device,
    ops::clifford::{
        cs_layer_norm, cs_mv_gelu, fcgp, mv_layer_norm, mv_linear,
        mv_normalization::{self, Norm},
        mv_silu,
        sgp::{self, ProductOptions},
        steerable_gp, steerable_layer, table_product,
    },
};
use rand::RngExt;
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

    /// Compares results, in the order in which both were computed. `slack` is how much more than the dtype's own error a sum of products
    /// allows.
    fn close(&self, what: &str, tested: &[&Array], reference: &[&Array], slack: f64) {
        self.within(what, tested, reference, &vec![slack * tolerance(self.dtype); reference.len()]);
    }

    /// Compares results, each within its bound.
    fn within(&self, what: &str, tested: &[&Array], reference: &[&Array], bounds: &[f64]) {
        assert_eq!((tested.len(), reference.len()), (bounds.len(), bounds.len()));
        for (position, ((tested, reference), bound)) in tested.iter().zip(reference).zip(bounds).enumerate() {
            let context = format!("{what}, result {position}, {}", self.name());
            assert_eq!(tested.shape(), reference.shape(), "{context}");
            assert_eq!(tested.device(), *self.device, "{context}");
            if reference.elements() == 0 {
                continue;
            }
            let wide = tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
            let error = wide.relative_error(reference).unwrap();
            assert!(error <= *bound, "{context}: relative error {error:e} > {bound:e}");
        }
    }

    /// What the conditioning of `run` at `inputs` allows each of its results: the rounding of the result, and some times what becomes of
    /// inputs that are off by a rounding error of the arithmetic, which is `f32` for 16 bits too.
    fn bounds(&mut self, inputs: &[&Array], run: impl Fn(&[&Array]) -> Vec<Array>) -> Vec<f64> {
        const DRAWS: usize = 4;
        /// Errors of the order of an input's own that an operator makes on the way. The CPU in `f32` needs half as many, for the slope 1 − σ
        /// of a gate that is nearly open, whose error is relative to 1; anything else needs a tenth.
        const ROUNDINGS: f64 = 128.0;
        let unit = if self.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let expected = run(inputs);
        let mut moved = vec![0.0f64; expected.len()];
        for _ in 0..DRAWS {
            let nudged: Vec<Array> = inputs
                .iter()
                .map(|input| {
                    let mut values = input.to_f64_vec().unwrap();
                    values.iter_mut().for_each(|x| *x *= 1.0 + unit * self.rng.random_range(-1.0..1.0));
                    Array::from_vec(values, input.shape(), &Device::Cpu).unwrap()
                })
                .collect();
            let found = run(&nudged.iter().collect::<Vec<_>>());
            for (moved, (found, expected)) in moved.iter_mut().zip(found.iter().zip(&expected)) {
                if expected.elements() > 0 {
                    *moved = moved.max(found.relative_error(expected).unwrap());
                }
            }
        }
        moved.into_iter().map(|moved| 4.0 * tolerance(self.dtype) + ROUNDINGS * moved).collect()
    }
}

impl Case<'_> {
    /// Asserts that `run` gives the same for the tested and the reference side, within the bounds of its conditioning.
    fn agree(&mut self, what: &str, inputs: &[&Pair], run: impl Fn(&[&Array]) -> Vec<Array>) {
        let side = |of: fn(&Pair) -> &Array| inputs.iter().map(|&pair| of(pair)).collect::<Vec<_>>();
        let (tested, reference) = (side(|pair| &pair.tested), side(|pair| &pair.reference));
        let bounds = self.bounds(&reference, &run);
        let (tested, expected) = (run(&tested), run(&reference));
        let [tested, expected] = [&tested, &expected].map(|results| results.iter().collect::<Vec<_>>());
        self.within(what, &tested, &expected, &bounds);
    }
}

/// Whether 16 bits are too few: a gradient that is a difference of nearly equal numbers, or one near the singular points of
/// an indefinite norm, which may be beyond the largest number of 16 bits.
fn is_hopeless(case: &Case<'_>, norm_over_few: bool) -> bool {
    let indefinite = case.algebra.signature().q > 0 || case.algebra.signature().r > 0;
    matches!(case.dtype, DType::F16 | DType::BF16) && (indefinite || (norm_over_few && case.features < 8))
}

fn for_cases(device: &Device, slow: bool, test: impl Fn(&mut Case<'_>)) {
    for (p, q, r) in SIGNATURES {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        if slow && algebra.blade_count() > 32 {
            continue;
        }
        for dtype in DType::ALL {
            for (seed, (batch, features)) in SIZES.into_iter().enumerate() {
                let (algebra, rng) = (algebra.clone(), rng(seed as u64));
                test(&mut Case { algebra, device, dtype, batch, features, rng });
            }
        }
    }
}

fn weighted_products_bare_gated_and_normalised(device: &Device) {
    for_cases(device, false, |case| {
        for (gate, normalize) in [(false, false), (true, true), (true, false)] {
            let options = ProductOptions { gate, normalize };
            if normalize && is_hopeless(case, true) {
                continue;
            }
            let (x, y, grad) = (case.x(case.features), case.x(case.features), case.x(case.features));
            let w = case.random(&[case.features, case.algebra.paths().len()]);
            let run = |[x, y, w, grad]: [&Array; 4]| {
                let operands = sgp::Operands { x, y, w };
                let product = sgp::forward(&case.algebra, &operands, options).unwrap();
                let found = sgp::backward(&case.algebra, &operands, options, &product, grad, sgp::Needs::ALL)
                    .unwrap();
                [product.output, found.x.unwrap(), found.y.unwrap(), found.w.unwrap()]
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

fn fully_connected_products(device: &Device) {
    for_cases(device, true, |case| {
        for (gate, normalize) in [(false, false), (true, true)] {
            let options = ProductOptions { gate, normalize };
            if normalize && is_hopeless(case, true) {
                continue;
            }
            let outputs = case.features.div_ceil(2) + 1;
            let (x, y, grad) = (case.x(case.features), case.x(case.features), case.x(outputs));
            let w = case.random(&[case.algebra.paths().len(), case.features, outputs]);
            let run = |[x, y, w, grad]: [&Array; 4]| {
                let operands = sgp::Operands { x, y, w };
                let product = fcgp::forward(&case.algebra, &operands, options).unwrap();
                let found =
                    fcgp::backward(&case.algebra, &operands, options, &product, grad, sgp::Needs::ALL)
                        .unwrap();
                [product.output, found.x.unwrap(), found.y.unwrap(), found.w.unwrap()]
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
fn fully_connected_products_of_many_rows(device: &Device) {
    for (seed, (dtype, signature)) in
        [(DType::F32, Signature::CL3), (DType::BF16, Signature::CL3), (DType::F32, Signature::new(0, 3, 0))]
            .into_iter()
            .enumerate()
    {
        let (batch, features, outputs) = if dtype == DType::F32 { (4637, 256, 40) } else { (4637, 512, 24) };
        let algebra = Algebra::new(signature).unwrap();
        let rng = rng(seed as u64);
        let mut case = Case { algebra, device, dtype, batch, features, rng };
        let (x, y, grad) = (case.x(features), case.x(features), case.x(outputs));
        let w = case.random(&[case.algebra.paths().len(), features, outputs]);
        let run = |[x, y, w, grad]: [&Array; 4], needs: [bool; 3]| {
            let options = ProductOptions { gate: true, normalize: true };
            let operands = sgp::Operands { x, y, w };
            let product = fcgp::forward(&case.algebra, &operands, options).unwrap();
            let needs = sgp::Needs { x: needs[0], y: needs[1], w: needs[2] };
            let found = fcgp::backward(&case.algebra, &operands, options, &product, grad, needs).unwrap();
            [Some(product.output), found.x, found.y, found.w]
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

fn linear_maps_per_grade_and_shared(device: &Device) {
    for_cases(device, false, |case| {
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
                let found =
                    mv_linear::backward(&case.algebra, x, w, bias, grad, mv_linear::Needs::ALL).unwrap();
                [out, found.x.unwrap(), found.w.unwrap(), found.bias.unwrap()]
            };
            let tested = run([&x.tested, &w.tested, &b.tested, &grad.tested]);
            let expected = run([&x.reference, &w.reference, &b.reference, &grad.reference]);
            case.close("mv_linear", &tested.each_ref(), &expected.each_ref(), 4.0);
        }
    });
}

fn gates_and_norms_of_the_equivariant_layers(device: &Device) {
    for_cases(device, false, |case| {
        if is_hopeless(case, false) {
            return;
        }
        let (x, grad) = (case.x(case.features), case.x(case.features));
        let per_grade = [case.features, case.algebra.grade_count()];
        let (a, b, gain) = (case.random(&per_grade), case.random(&per_grade), case.random(&[case.features]));
        let algebra = case.algebra.clone();
        let run = |inputs: &[&Array]| {
            let [x, a, b, gain, grad] = inputs[..] else { unreachable!("five of them") };
            let silu = mv_silu::backward(&algebra, x, a, b, grad).unwrap();
            let normalized = |norm| mv_normalization::forward(norm, &algebra, x, a).unwrap();
            let normalization = |norm| mv_normalization::backward(norm, &algebra, x, a, grad).unwrap();
            let (smooth, clamped) = (normalization(Norm::Smooth), normalization(Norm::Clamped));
            let layer = mv_layer_norm::backward(&algebra, x, gain, grad).unwrap();
            vec![
                mv_silu::forward(&algebra, x, a, b).unwrap(),
                silu.x,
                silu.a,
                silu.b,
                normalized(Norm::Smooth),
                smooth.x,
                smooth.a,
                normalized(Norm::Clamped),
                clamped.x,
                clamped.a,
                mv_layer_norm::forward(&algebra, x, gain).unwrap(),
                layer.x,
                layer.a,
                cs_layer_norm::forward(&algebra, x).unwrap(),
                cs_layer_norm::backward(&algebra, x, grad).unwrap(),
                cs_mv_gelu::forward(x).unwrap(),
                cs_mv_gelu::backward(x, grad).unwrap(),
            ]
        };
        case.agree("gates and norms", &[&x, &a, &b, &gain, &grad], run);
    });
}

fn steerable_products_and_layers(device: &Device) {
    for_cases(device, false, |case| {
        if is_hopeless(case, false) {
            return;
        }
        let (x, right, left, grad) =
            (case.x(case.features), case.x(case.features), case.x(case.features), case.x(case.features));
        let n = case.features;
        let matrices = [case.algebra.grade_count(), n, n];
        let (m, l, bias) = (case.random(&matrices), case.random(&matrices), case.random(&[n]));
        let (a, w) = (case.random(&[n, matrices[0]]), case.random(&[n, case.algebra.paths().len()]));
        let algebra = case.algebra.clone();
        let run = |inputs: &[&Array]| {
            let [x, right, left, grad, m, l, bias, a, w] = inputs[..] else { unreachable!("nine of them") };
            let operands = steerable_gp::Operands { x, right, a, w, left: Some(left) };
            let mut found = vec![steerable_gp::forward(&algebra, &operands).unwrap()];
            let g = steerable_gp::backward(&algebra, &operands, grad, steerable_gp::Needs::ALL).unwrap();
            found.extend([g.x, g.right, g.a, g.w, g.left].map(Option::unwrap));
            let operands = steerable_layer::Operands { x, right: m, a, w, left: Some((l, bias)) };
            found.push(steerable_layer::forward(&algebra, &operands).unwrap());
            let g = steerable_layer::backward(&algebra, &operands, grad).unwrap();
            let (left, bias) = g.left.unwrap();
            found.extend([g.x, g.right, g.a, g.w, left, bias]);
            found
        };
        case.agree("steerable", &[&x, &right, &left, &grad, &m, &l, &bias, &a, &w], run);
    });
}

fn products_by_a_table_and_their_gradients(device: &Device) {
    for_cases(device, false, |case| {
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

fn the_same_inputs_give_the_same_bits(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let mut rng = rng(11);
    let options = ProductOptions { gate: true, normalize: true };
    let mut random = |shape: &[usize]| Array::randn(shape, DType::F32, device, &mut rng).unwrap();
    let (x, y, w) = (random(&[8, 1000, 96]), random(&[8, 1000, 96]), random(&[96, 20]));
    let grad = random(&[8, 1000, 96]);
    let run = || {
        let operands = sgp::Operands { x: &x, y: &y, w: &w };
        let product = sgp::forward(&algebra, &operands, options).unwrap();
        let found = sgp::backward(&algebra, &operands, options, &product, &grad, sgp::Needs::ALL).unwrap();
        [product.output, found.x.unwrap(), found.y.unwrap(), found.w.unwrap()]
            .map(|array| array.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let first = run();
    for _ in 0..5 {
        assert_eq!(run(), first);
    }
}

gradewise_testing::main!(
    weighted_products_bare_gated_and_normalised,
    fully_connected_products,
    fully_connected_products_of_many_rows,
    linear_maps_per_grade_and_shared,
    gates_and_norms_of_the_equivariant_layers,
    steerable_products_and_layers,
    products_by_a_table_and_their_gradients,
    the_same_inputs_give_the_same_bits,
);
