//! Grade-wise linear maps between at most 32 features on both sides (csrc/clifford/linear/narrow.cuh), against the CPU in double precision.

mod common;

use common::{Pair, function, launched, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, Result, debug,
    ops::clifford::{
        mv_linear::{self, Bias, Gradients, Needs},
        steerable_layer,
    },
};
use rand::RngExt;

/// Rows, inputs and outputs: one row, single features, all widths of the kernels and those between, packs and others, tails of tiles.
const SIZES: [(usize, usize, usize); 20] = [
    (1, 1, 1),
    (1, 12, 12),
    (5, 32, 32),
    (500, 12, 12),
    (333, 8, 8),
    (257, 13, 8),
    (129, 24, 12),
    (128, 12, 24),
    (77, 5, 5),
    (500, 5, 28),
    (300, 28, 5),
    (65, 16, 32),
    (65, 32, 16),
    (130, 16, 17),
    (130, 17, 16),
    (259, 31, 29),
    (1000, 4, 32),
    (1000, 32, 4),
    (40, 20, 13),
    (1025, 3, 7),
];

struct Case {
    algebra: Algebra,
    bias: Bias,
    x: Pair,
    w: Pair,
    b: Pair,
    grad: Pair,
}

impl Case {
    fn new(
        signature: Signature,
        (rows, inputs, outputs): (usize, usize, usize),
        (is_shared, bias): (bool, Bias),
        device: &Device,
    ) -> Self {
        debug::set(true);
        let algebra = Algebra::new(signature).unwrap();
        let mut rng = rng((rows * 10_000 + inputs * 100 + outputs) as u64);
        let mut random = |shape: &[usize]| Pair::randn(shape, DType::F32, device, &mut rng);
        let (blades, matrices) = (algebra.blade_count(), [algebra.grade_count(), inputs, outputs]);
        let (x, grad) = (random(&[blades, rows, inputs]), random(&[blades, rows, outputs]));
        let (w, b) = (random(&matrices[usize::from(is_shared)..]), random(&[outputs]));
        Self { algebra, bias, x, w, b, grad }
    }

    fn plain(size: (usize, usize, usize), device: &Device) -> Self {
        Self::new(Signature::CL3, size, (false, Bias::Scalar), device)
    }

    fn forward(&self, of: impl Fn(&Pair) -> &Array, has_bias: bool) -> Array {
        let bias = has_bias.then(|| (of(&self.b), self.bias));
        mv_linear::forward(&self.algebra, of(&self.x), of(&self.w), bias).unwrap()
    }

    fn backward(&self, of: impl Fn(&Pair) -> &Array, needs: Needs) -> Gradients {
        let (x, w, grad) = (of(&self.x), of(&self.w), of(&self.grad));
        mv_linear::backward(&self.algebra, x, w, self.bias, grad, needs).unwrap()
    }

    /// Asserts that the result and all gradients agree with double precision; gives the kernels that ran in both passes.
    fn agrees(&self, what: &str) -> [Vec<String>; 2] {
        let (out, forward) = launched(|| self.forward(tested, true));
        let (found, backward) = launched(|| self.backward(tested, Needs::ALL));
        let expected = self.backward(reference, Needs::ALL);
        for (name, tested, expected) in [
            ("result", Some(out), Some(self.forward(reference, true))),
            ("result without bias", Some(self.forward(tested, false)), Some(self.forward(reference, false))),
            ("gradient of x", found.x, expected.x),
            ("gradient of w", found.w, expected.w),
            ("gradient of the bias", found.bias, expected.bias),
        ] {
            let (tested, expected) = (tested.unwrap(), expected.unwrap());
            assert_eq!(tested.shape(), expected.shape(), "{what}, {name}");
            let wide = tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
            let error = wide.relative_error(&expected).unwrap();
            assert!(error <= tolerance(DType::F32), "{what}, {name}: relative error {error:e}");
        }
        [forward, backward].map(|launches| launches.iter().map(|work| function(work)).collect())
    }
}

fn tested(pair: &Pair) -> &Array {
    &pair.tested
}

fn reference(pair: &Pair) -> &Array {
    &pair.reference
}

fn bits(array: &Array) -> Vec<u64> {
    array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect()
}

fn bits_of(gradients: &Gradients) -> [Option<Vec<u64>>; 3] {
    [&gradients.x, &gradients.w, &gradients.bias].map(|array| array.as_ref().map(bits))
}

const fn product(terms: usize) -> &'static str {
    if terms <= 16 { "mv_linear_narrow_short" } else { "mv_linear_narrow_long" }
}

fn agree_with_double_precision(device: &Device) {
    let signatures =
        [Signature::CL3, Signature::new(1, 1, 1), Signature::new(4, 0, 0), Signature::new(5, 0, 0)];
    // One of them under a tool that slows every instruction down.
    let is_slow = std::env::var_os("GRADEWISE_TEST_SEEDS").is_some();
    let signatures = &signatures[..if is_slow { 1 } else { signatures.len() }];
    for size in SIZES {
        for &signature in signatures {
            for is_shared in [false, true] {
                for bias in [Bias::Scalar, Bias::AllBlades] {
                    let case = Case::new(signature, size, (is_shared, bias), device);
                    let what = format!("{signature} {size:?}, shared {is_shared}, {bias:?}");
                    let [forward, backward] = case.agrees(&what);
                    let (rows, inputs, outputs) = size;
                    assert_eq!(forward, [product(inputs)], "{what}");
                    // Copies of small arrays may have pushed it out of the log.
                    let is_logged = backward.iter().any(|work| work == product(outputs));
                    assert!(is_logged || backward.len() == debug::KEPT, "{what}: {backward:?}");
                    // Products of matrices form sums of so few rows in double precision.
                    let grades = (0..case.algebra.grade_count())
                        .map(|grade| case.algebra.blades_of_grade(grade).len());
                    let blades = if is_shared { case.algebra.blade_count() } else { grades.max().unwrap() };
                    let sums = backward.iter().any(|work| work == "mv_linear_narrow_grad");
                    assert_eq!(sums, blades * rows > 16, "{what}: {backward:?}");
                }
            }
        }
    }
}

/// Sizes at random, as many rows as a few tiles have.
fn random_sizes_agree(device: &Device) {
    let mut rng = rng(11);
    for _ in 0..60 {
        let mut below = |most: usize| rng.random_range(1..=most);
        let size = (below(700), below(32), below(32));
        let kind = (below(3) == 1, if below(2) == 1 { Bias::Scalar } else { Bias::AllBlades });
        let signature = Signature::new(below(3) as u8, below(2) as u8 - 1, 0);
        let what = format!("{signature} {size:?} {kind:?}");
        Case::new(signature, size, kind, device).agrees(&what);
    }
}

/// More rows than a thread adds up in f32, and more than there are stretches for.
fn sums_over_many_rows(device: &Device) {
    for size in [(30_011, 12, 12), (20_011, 1, 1), (20_011, 32, 32), (9_001, 13, 8)] {
        Case::plain(size, device).agrees(&format!("{size:?}"));
    }
}

fn take_few_launches(device: &Device) {
    let (gradient, sum) = ("mv_linear_narrow_grad", "sum_partials");
    let (short, long) = (product(16), product(17));
    for (size, needs_x, expected) in [
        ((500, 12, 12), true, &[short, gradient, sum] as &[_]),
        ((500, 12, 24), true, &[long, gradient, sum]),
        ((500, 24, 12), false, &[gradient, sum]),
        ((80, 8, 8), false, &[gradient]),
    ] {
        let case = Case::plain(size, device);
        let (_, forward) = launched(|| case.forward(tested, true));
        assert_eq!(forward.len(), 1, "{size:?}: {forward:?}");
        let (_, backward) = launched(|| case.backward(tested, Needs { x: needs_x, ..Needs::ALL }));
        let backward: Vec<String> = backward.iter().map(|work| function(work)).collect();
        assert_eq!(backward, expected, "{size:?}");
    }
}

fn the_same_inputs_give_the_same_bits(device: &Device) {
    for size in [(5000, 12, 12), (500, 13, 8), (300, 32, 29), (3, 8, 8)] {
        let case = Case::plain(size, device);
        let run = || (bits(&case.forward(tested, true)), bits_of(&case.backward(tested, Needs::ALL)));
        let first = run();
        for _ in 0..3 {
            assert!(run() == first, "{size:?}");
        }
    }
}

/// Gradients have the same bits whichever others are asked for.
fn any_of_the_gradients_can_be_left_out(device: &Device) {
    for size in [(5000, 12, 12), (5000, 13, 8), (900, 24, 12), (70, 32, 32), (2, 8, 8)] {
        for kind in
            [(false, Bias::Scalar), (false, Bias::AllBlades), (true, Bias::Scalar), (true, Bias::AllBlades)]
        {
            let case = Case::new(Signature::CL3, size, kind, device);
            let all = bits_of(&case.backward(tested, Needs::ALL));
            for mask in 0..8_u32 {
                let needed = [0, 1, 2].map(|bit| mask >> bit & 1 == 1);
                let [x, w, bias] = needed;
                let found = bits_of(&case.backward(tested, Needs { x, w, bias }));
                for (needed, (found, all)) in needed.into_iter().zip(found.iter().zip(&all)) {
                    assert_eq!(found.is_some(), needed, "{size:?} {kind:?} {mask}");
                    assert!(!needed || found == all, "{size:?} {kind:?} {mask}");
                }
            }
        }
    }
}

/// A steerable layer adds the gradients of its two maps to another gradient of x.
fn gradients_of_x_are_added(device: &Device) {
    debug::set(true);
    // An algebra whose layers are not one kernel.
    let algebra = Algebra::new(Signature::new(4, 0, 0)).unwrap();
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    for (rows, features) in [(1, 12), (300, 12), (515, 8), (77, 13), (130, 32)] {
        let mut rng = rng(features as u64);
        let mut random = |shape: &[usize]| Pair::randn(shape, DType::F32, device, &mut rng);
        let [x, grad] = [(); 2].map(|()| random(&[blades, rows, features]));
        let [right, left] = [(); 2].map(|()| random(&[grades, features, features]));
        let (a, w, bias) = (random(&[features, grades]), random(&[features, paths]), random(&[features]));
        let backward = |of: fn(&Pair) -> &Array| {
            let left = Some((of(&left), of(&bias)));
            let operands =
                steerable_layer::Operands { x: of(&x), right: of(&right), a: of(&a), w: of(&w), left };
            steerable_layer::backward(&algebra, &operands, of(&grad)).unwrap()
        };
        let (found, launches) = launched(|| backward(tested));
        let products = launches.iter().filter(|work| function(work) == product(features)).count();
        // Of the map itself, which comes first, the log may have let go.
        assert!(products >= 2, "{rows} × {features}: {launches:?}");
        let wide = found.x.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
        let error = wide.relative_error(&backward(reference).x).unwrap();
        // The norms of rows of the layer's product magnify rounding.
        assert!(error <= 10.0 * tolerance(DType::F32), "{rows} × {features}: relative error {error:e}");
    }
}

/// Rows that begin between packs, columns of wider rows, repeated and transposed rows.
fn views_are_served(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let mut rng = rng(3);
    for (inputs, outputs) in [(12, 12), (8, 13), (28, 4), (24, 32)] {
        let mut random = |shape: &[usize]| Pair::randn(shape, DType::F32, device, &mut rng);
        let storage = |pair: Pair, width: usize| {
            let rows = 8 * 50 * width;
            let apart =
                |start: usize| pair.map(|all| all.slice(0, start..start + rows)?.reshape([8, 50, width]));
            let columns = pair.map(|all| {
                all.slice(0, 0..8 * 50 * (width + 3))?.reshape([8, 50, width + 3])?.slice(2, 2..2 + width)
            });
            let turned = pair.map(|all| all.slice(0, 0..rows)?.reshape([8, width, 50])?.transpose(1, 2));
            let repeated = pair
                .map(|all| all.slice(0, 0..8 * width)?.reshape([8, 1, width])?.broadcast_to([8, 50, width]));
            [apart(0), apart(1), apart(2), apart(4), columns, turned, repeated]
        };
        let (w, b) = (random(&[4, inputs, outputs]), random(&[outputs]));
        let x = storage(random(&[8 * 50 * (inputs + 3)]), inputs);
        let grad = storage(random(&[8 * 50 * (outputs + 3)]), outputs);
        for (view, (x, grad)) in x.into_iter().zip(grad).enumerate() {
            let (w, b, algebra) = (w.clone(), b.clone(), algebra.clone());
            let case = Case { algebra, bias: Bias::Scalar, x, w, b, grad };
            case.agrees(&format!("view {view} of {inputs} → {outputs}"));
        }
    }
}

fn without_rows_gradients_are_zero(device: &Device) {
    let case = Case::plain((0, 12, 8), device);
    assert_eq!(case.forward(tested, true).dims(), [8, 0, 8]);
    let found = case.backward(tested, Needs::ALL);
    assert_eq!(found.x.unwrap().dims(), [8, 0, 12]);
    for gradient in [found.w.unwrap(), found.bias.unwrap()] {
        assert!(gradient.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) -> Result<()> {
    for (rows, inputs, outputs) in [(100, 12, 12), (100, 13, 8), (100, 30, 7), (77, 32, 32)] {
        let case = Case::plain((rows, inputs, outputs), device);
        let broken = |array: &Array| -> Result<Array> {
            let mut values = array.to_f64_vec()?;
            values[(3 * rows + 41) * array.dims()[2]] = f64::NAN;
            Array::from_vec(values, array.shape(), &Device::Cpu)?.cast(DType::F32)?.to_device(device)
        };
        let (x, grad) = (broken(&case.x.tested)?, broken(&case.grad.tested)?);
        let (algebra, w, needs) = (&case.algebra, &case.w.tested, Needs::ALL);
        let out = mv_linear::forward(algebra, &x, w, None)?;
        let found = mv_linear::backward(algebra, &case.x.tested, w, Bias::Scalar, &grad, needs)?;
        for array in [&out, &found.x.unwrap()] {
            for (at, value) in array.to_f64_vec()?.into_iter().enumerate() {
                let is_broken = at / array.dims()[2] == 3 * rows + 41;
                assert_eq!(value.is_nan(), is_broken, "{inputs} → {outputs} at {at}");
            }
        }
    }
    Ok(())
}

fn nan_stays_in_its_row(device: &Device) {
    what_is_not_a_number_stays_in_its_row(device).unwrap();
}

gradewise_testing::main!(
    agree_with_double_precision,
    random_sizes_agree,
    sums_over_many_rows,
    take_few_launches,
    the_same_inputs_give_the_same_bits,
    any_of_the_gradients_can_be_left_out,
    gradients_of_x_are_added,
    views_are_served,
    without_rows_gradients_are_zero,
    nan_stays_in_its_row,
);
