//! Grade-wise linear maps between few features and many (csrc/clifford/linear/few_to_many.cuh), against the CPU in double precision.

mod common;

use common::{Pair, function, launched, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, Result, debug,
    ops::clifford::mv_linear::{self, Bias, Gradients, Needs},
};

const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// Rows, inputs and outputs. One row, single features, widths between those of the kernels, rows that are packs and others, more packs
/// than a block has, and as many features as are served. In f32 other kernels serve at most 32 features on both sides
/// (`cuda_narrow`), unless one side has at most 3 and the other more than 16.
const SIZES: [(usize, usize, usize); 21] = [
    (1, 1, 1),
    (1, 3, 28),
    (500, 3, 28),
    (500, 28, 1),
    (33, 2, 17),
    (33, 17, 2),
    (3, 4, 4),
    (301, 4, 12),
    (301, 12, 1),
    (777, 29, 3),
    (259, 5, 64),
    (130, 64, 7),
    (65, 8, 260),
    (65, 256, 4),
    (9, 1, 1021),
    (9, 1024, 8),
    (1, 3, 41),
    (33, 2, 36),
    (301, 40, 4),
    (33, 37, 2),
    (77, 36, 3),
];

struct Case {
    algebra: Algebra,
    bias: Bias,
    /// The dtype of the output.
    output: DType,
    x: Pair,
    w: Pair,
    b: Pair,
    grad: Pair,
}

impl Case {
    fn new(
        signature: Signature,
        (rows, inputs, outputs): (usize, usize, usize),
        dtype: DType,
        (is_shared, bias): (bool, Bias),
        device: &Device,
    ) -> Self {
        Self::mixed(signature, (rows, inputs, outputs), (dtype, dtype), (is_shared, bias), device)
    }

    /// Of many features in one dtype and all the rest in another.
    fn mixed(
        signature: Signature,
        (rows, inputs, outputs): (usize, usize, usize),
        (dtype, of_few): (DType, DType),
        (is_shared, bias): (bool, Bias),
        device: &Device,
    ) -> Self {
        debug::set(true);
        let algebra = Algebra::new(signature).unwrap();
        let mut rng = rng((rows * 10_000 + inputs * 100 + outputs) as u64);
        let mut random = |shape: &[usize], dtype| Pair::randn(shape, dtype, device, &mut rng);
        let (blades, matrices) = (algebra.blade_count(), [algebra.grade_count(), inputs, outputs]);
        let (of_x, output) = if inputs <= outputs { (of_few, dtype) } else { (dtype, of_few) };
        let (x, grad) = (random(&[blades, rows, inputs], of_x), random(&[blades, rows, outputs], output));
        let (w, b) = (random(&matrices[usize::from(is_shared)..], of_few), random(&[outputs], of_few));
        Self { algebra, bias, output, x, w, b, grad }
    }

    fn plain(size: (usize, usize, usize), dtype: DType, device: &Device) -> Self {
        Self::new(Signature::CL3, size, dtype, (false, Bias::Scalar), device)
    }

    fn forward(&self, of: impl Fn(&Pair) -> &Array) -> Array {
        let bias = Some((of(&self.b), self.bias));
        // References are in double precision.
        let dtype = if of(&self.x).dtype() == DType::F64 { DType::F64 } else { self.output };
        mv_linear::forward_in(dtype, &self.algebra, of(&self.x), of(&self.w), bias).unwrap()
    }

    fn backward(&self, of: impl Fn(&Pair) -> &Array, needs: Needs) -> Gradients {
        mv_linear::backward_in(&self.algebra, of(&self.x), of(&self.w), self.bias, of(&self.grad), needs)
            .unwrap()
    }

    /// Asserts that the result and all gradients agree with double precision; gives the kernels that ran in both passes.
    fn agrees(&self, what: &str) -> [Vec<String>; 2] {
        let (out, forward) = launched(|| self.forward(tested));
        let (found, backward) = launched(|| self.backward(tested, Needs::ALL));
        let expected = self.backward(reference, Needs::ALL);
        for (name, tested, expected, dtype) in [
            ("result", Some(out), Some(self.forward(reference)), self.output),
            ("gradient of x", found.x, expected.x, self.x.tested.dtype()),
            ("gradient of w", found.w, expected.w, self.w.tested.dtype()),
            ("gradient of the bias", found.bias, expected.bias, self.b.tested.dtype()),
        ] {
            let (tested, expected) = (tested.unwrap(), expected.unwrap());
            assert_eq!(tested.shape(), expected.shape(), "{what}, {name}");
            assert_eq!(tested.dtype(), dtype, "{what}, {name}");
            let wide = tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
            let error = wide.relative_error(&expected).unwrap();
            // What is stored in f32 is computed from what is stored otherwise without another rounding.
            assert!(error <= tolerance(dtype), "{what}, {name}: relative error {error:e}");
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

fn bits(gradients: &Gradients) -> Vec<Option<Vec<u64>>> {
    let bits = |array: &Array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect();
    [&gradients.x, &gradients.w, &gradients.bias].map(|array| array.as_ref().map(bits)).into()
}

fn agree_with_double_precision(device: &Device) {
    let signatures = [Signature::CL3, Signature::new(1, 1, 1), Signature::new(5, 0, 0), Signature::CL2];
    // One of them under a tool that slows every instruction down.
    let is_slow = std::env::var_os("GRADEWISE_TEST_SEEDS").is_some();
    let signatures = &signatures[..if is_slow { 1 } else { signatures.len() }];
    for size in SIZES {
        for (&signature, dtype) in signatures.iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
            for (is_shared, bias) in [
                (false, Bias::Scalar),
                (false, Bias::AllBlades),
                (true, Bias::Scalar),
                (true, Bias::AllBlades),
            ] {
                let case = Case::new(signature, size, dtype, (is_shared, bias), device);
                let what = format!("{signature} {size:?} {dtype}, shared {is_shared}, {bias:?}");
                let [forward, backward] = case.agrees(&what);
                let (rows, inputs, outputs) = size;
                let is_lopsided = inputs.min(outputs) <= 3 && inputs.max(outputs) > 16;
                if dtype == DType::F32 && inputs.max(outputs) <= 32 && !is_lopsided {
                    continue;
                }
                let grades =
                    (0..case.algebra.grade_count()).map(|grade| case.algebra.blades_of_grade(grade).len());
                let blades = if is_shared { case.algebra.blade_count() } else { grades.max().unwrap() };
                // Products of matrices form sums of f32 over so few rows in double precision.
                let sums = dtype != DType::F32 || blades * rows > 16;
                let ran = |name: &str| backward.iter().any(|work| work == name);
                if inputs <= outputs {
                    assert_eq!(forward, ["mv_linear_few_to_many"], "{what}");
                    assert!(ran("mv_linear_many_to_few"), "{what}: {backward:?}");
                    assert_eq!(ran("mv_linear_weight_grad"), sums, "{what}: {backward:?}");
                } else {
                    assert_eq!(forward, ["mv_linear_many_to_few"], "{what}");
                    let is_joint = sums && inputs.min(outputs) <= 4;
                    assert_eq!(ran("mv_linear_grads"), is_joint, "{what}: {backward:?}");
                    assert_eq!(ran("mv_linear_few_to_many"), !is_joint, "{what}: {backward:?}");
                    assert_eq!(ran("mv_linear_weight_grad"), sums && !is_joint, "{what}: {backward:?}");
                }
            }
        }
    }
}

/// Few features and parameters in f32 beside many features of 16 bits, by the same kernels; by others where rows are no packs.
fn few_features_may_be_wide(device: &Device) {
    for size in SIZES {
        for dtype in [DType::BF16, DType::F16] {
            for (is_shared, bias) in [(false, Bias::Scalar), (false, Bias::AllBlades), (true, Bias::Scalar)] {
                let case = Case::mixed(Signature::CL3, size, (dtype, DType::F32), (is_shared, bias), device);
                let what = format!("{size:?} {dtype} with f32, shared {is_shared}, {bias:?}");
                let (x, w) = (&case.x.tested, &case.w.tested);
                let dtypes = mv_linear::mixed_dtypes(dtype, &case.algebra, x, w);
                assert_eq!(dtypes, Some([x.dtype(), case.output]), "{what}");
                let [forward, backward] = case.agrees(&what);
                let (_, inputs, outputs) = size;
                if inputs.max(outputs).is_multiple_of(4) {
                    let expected =
                        if inputs <= outputs { "mv_linear_few_to_many" } else { "mv_linear_many_to_few" };
                    assert_eq!(forward, [expected], "{what}");
                    let is_ours = |name: &String| name.starts_with("mv_linear") || name == "sum_partials";
                    // A bias of all blades is summed by itself.
                    let is_by_itself = bias == Bias::AllBlades;
                    assert!(is_by_itself || backward.iter().all(is_ours), "{what}: {backward:?}");
                }
            }
        }
    }
    // Rows that begin between packs.
    let case =
        Case::mixed(Signature::CL3, (50, 28, 3), (DType::BF16, DType::F32), (false, Bias::Scalar), device);
    let apart = |pair: &Pair| {
        let elements = pair.tested.elements();
        let longer = Pair::randn([elements + 1], DType::BF16, device, &mut rng(9));
        longer.map(|all| all.slice(0, 1..1 + elements)?.reshape([8, 50, 28]))
    };
    let [forward, _] = Case { x: apart(&case.x), ..case }.agrees("rows between packs");
    assert_eq!(forward, ["cast", "mv_linear_many_to_few"]);
}

fn sums_over_many_rows(device: &Device) {
    for size in [(20_011, 3, 40), (20_011, 40, 1), (5_003, 128, 1), (3_001, 37, 8)] {
        for dtype in DTYPES {
            Case::plain(size, dtype, device).agrees(&format!("{size:?} {dtype}"));
        }
    }
}

fn take_few_launches(device: &Device) {
    let sum = "sum_partials";
    for (size, needs_x, expected) in [
        ((500, 40, 1), true, &["mv_linear_grads", sum] as &[_]),
        ((500, 3, 40), true, &["mv_linear_many_to_few", "mv_linear_weight_grad", sum]),
        ((500, 3, 40), false, &["mv_linear_weight_grad", sum]),
        ((7, 3, 40), false, &["mv_linear_weight_grad"]),
        ((5000, 40, 6), true, &["mv_linear_weight_grad", sum, "mv_linear_few_to_many"]),
    ] {
        let case = Case::plain(size, DType::F32, device);
        let (_, forward) = launched(|| case.forward(tested));
        assert_eq!(forward.len(), 1, "{size:?}: {forward:?}");
        let (_, backward) = launched(|| case.backward(tested, Needs { x: needs_x, ..Needs::ALL }));
        let backward: Vec<String> = backward.iter().map(|work| function(work)).collect();
        assert_eq!(backward, expected, "{size:?}");
    }
}

fn the_same_inputs_give_the_same_bits(device: &Device) {
    for size in [(5000, 3, 28), (500, 40, 1), (300, 6, 100)] {
        for dtype in DTYPES {
            let case = Case::plain(size, dtype, device);
            let run =
                || (case.forward(tested).to_f64_vec().unwrap(), bits(&case.backward(tested, Needs::ALL)));
            let first = run();
            for _ in 0..3 {
                assert!(run() == first, "{size:?} {dtype}");
            }
        }
    }
}

fn any_of_the_gradients_can_be_left_out(device: &Device) {
    for size in [(5000, 3, 40), (5000, 40, 1), (900, 40, 4), (5000, 8, 33)] {
        let case = Case::plain(size, DType::F32, device);
        let all = bits(&case.backward(tested, Needs::ALL));
        for mask in 0..8_u32 {
            let [x, w, bias] = [0, 1, 2].map(|bit| mask >> bit & 1 == 1);
            let found = bits(&case.backward(tested, Needs { x, w, bias }));
            for (position, (needed, (found, all))) in
                [x, w, bias].into_iter().zip(found.iter().zip(&all)).enumerate()
            {
                assert_eq!(found.is_some(), needed, "{size:?} {mask}");
                // Without the gradient of w, another kernel adds up that of the bias.
                if needed && (position < 2 || w) {
                    assert!(found == all, "{size:?} {mask}, gradient {position}");
                }
            }
        }
    }
}

/// Rows that begin between packs, columns of wider rows, repeated and transposed rows.
fn views_are_served(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let mut rng = rng(3);
    for dtype in DTYPES {
        for (inputs, outputs) in [(3, 28), (28, 1)] {
            let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
            let storage = |pair: Pair, width: usize| {
                let rows = 8 * 50 * width;
                let apart =
                    |start: usize| pair.map(|all| all.slice(0, start..start + rows)?.reshape([8, 50, width]));
                let columns = pair.map(|all| {
                    all.slice(0, 0..8 * 50 * (width + 3))?.reshape([8, 50, width + 3])?.slice(2, 2..2 + width)
                });
                let turned = pair.map(|all| all.slice(0, 0..rows)?.reshape([8, width, 50])?.transpose(1, 2));
                let repeated = pair.map(|all| {
                    all.slice(0, 0..8 * width)?.reshape([8, 1, width])?.broadcast_to([8, 50, width])
                });
                [apart(0), apart(1), apart(4), columns, turned, repeated]
            };
            let (w, b) = (random(&[4, inputs, outputs]), random(&[outputs]));
            let x = storage(random(&[8 * 50 * (inputs + 3)]), inputs);
            let grad = storage(random(&[8 * 50 * (outputs + 3)]), outputs);
            for (view, (x, grad)) in x.into_iter().zip(grad).enumerate() {
                let (w, b, algebra) = (w.clone(), b.clone(), algebra.clone());
                let case = Case { algebra, bias: Bias::Scalar, output: dtype, x, w, b, grad };
                case.agrees(&format!("view {view} of {inputs} → {outputs} {dtype}"));
            }
        }
    }
}

fn without_rows_gradients_are_zero(device: &Device) {
    for (inputs, outputs) in [(3, 28), (28, 1)] {
        let case = Case::plain((0, inputs, outputs), DType::F32, device);
        assert_eq!(case.forward(tested).dims(), [8, 0, outputs]);
        let found = case.backward(tested, Needs::ALL);
        assert_eq!(found.x.unwrap().dims(), [8, 0, inputs]);
        for gradient in [found.w.unwrap(), found.bias.unwrap()] {
            assert!(gradient.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
        }
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) -> Result<()> {
    for (rows, inputs, outputs) in [(100, 3, 28), (100, 28, 1), (100, 28, 3), (77, 30, 7)] {
        let case = Case::plain((rows, inputs, outputs), DType::F32, device);
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
                assert_eq!(
                    value.is_nan(),
                    at / array.dims()[2] == 3 * rows + 41,
                    "{inputs} → {outputs} at {at}"
                );
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
    few_features_may_be_wide,
    sums_over_many_rows,
    take_few_launches,
    the_same_inputs_give_the_same_bits,
    any_of_the_gradients_can_be_left_out,
    views_are_served,
    without_rows_gradients_are_zero,
    nan_stays_in_its_row,
);
