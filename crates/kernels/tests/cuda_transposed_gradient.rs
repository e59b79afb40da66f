//! Gradients of the Clifford layer where the product's kernel writes the gradient of its right operand transposed (sm_90a, TF32), against
//! the operators that the layer joins, which do not, and against the CPU in double precision; and where it has to leave that.

mod common;

use common::{Pair, launched, rng};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, Compute, CudaDevice, DType, Device, build_info, debug,
    ops::{
        self,
        clifford::{
            clifford_layer::{self, Gradients, Kept, Needs, Operands, Options},
            mv_linear::{self, Bias},
            sgp::{self, ProductOptions},
        },
    },
};

const BOTH: ProductOptions = ProductOptions { gate: true, normalize: true };
const OPTIONS: Options = Options { fully_connected: false, product: BOTH };
const NEEDED: [bool; 4] = [true; 4];

/// A device on which it is known which sizes are dealt out evenly.
fn usable(device: &CudaDevice) -> Result<(), String> {
    let info = device.info();
    let known = info.compute_capability == (9, 0) && info.multiprocessors == 132;
    if known && build_info().targets.contains(&"90a") {
        return Ok(());
    }
    Err("not a device of 132 multiprocessors with kernels for sm_90a".to_owned())
}

struct Case {
    algebra: Algebra,
    bias: Bias,
    /// x, the matrices, the bias, the product weights and the gradient of the output.
    arrays: [Pair; 5],
}

impl Case {
    fn new(signature: Signature, (rows, features): (usize, usize), dtype: DType, device: &Device) -> Self {
        let algebra = Algebra::new(signature).unwrap();
        let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
        let mut rng = rng((rows * 10_000 + features) as u64);
        let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
        let rows = [blades, rows, features];
        let arrays = [
            random(&rows),
            random(&[grades, features, features]),
            random(&[features]),
            random(&[features, paths]),
            random(&rows),
        ];
        Self { algebra, bias: Bias::Scalar, arrays }
    }

    fn tested(&self) -> [&Array; 5] {
        self.arrays.each_ref().map(|pair| &pair.tested)
    }

    fn reference(&self) -> [&Array; 5] {
        self.arrays.each_ref().map(|pair| &pair.reference)
    }

    fn layer(&self, [x, linear, bias, w, grad]: [&Array; 5], needs: [bool; 4], keep: bool) -> Gradients {
        let operands = Operands { x, linear, bias: Some((bias, self.bias)), w };
        let output = clifford_layer::forward(&self.algebra, &operands, OPTIONS).unwrap();
        let kept = Kept { product: &output.product, y: keep.then_some(&output.y) };
        let needs = Needs { x: needs[0], linear: needs[1], bias: needs[2], w: needs[3] };
        clifford_layer::backward(&self.algebra, &operands, OPTIONS, kept, grad, needs).unwrap()
    }

    /// The layer's gradients, and whether the kernel in question ran.
    fn observed(&self, needs: [bool; 4], keep: bool) -> (Gradients, bool) {
        let Signature { p, q, r } = self.algebra.signature();
        let kernel = format!("gw_sgp_persistent_bwd_transposed_{p}_{q}_{r}_f32 ");
        let (found, launches) = launched(|| self.layer(self.tested(), needs, keep));
        let ran = launches.iter().any(|work| work.starts_with(&kernel));
        (found, ran)
    }

    /// The same gradients by the operators one by one.
    fn composed(&self) -> Gradients {
        let [x, linear, bias, w, grad] = self.tested();
        let algebra = &self.algebra;
        let y = mv_linear::forward(algebra, x, linear, Some((bias, self.bias))).unwrap();
        let operands = sgp::Operands { x, y: &y, w };
        let product = sgp::forward(algebra, &operands, BOTH).unwrap();
        let found = sgp::backward(algebra, &operands, BOTH, &product, grad, sgp::Needs::ALL).unwrap();
        let upstream = found.y.unwrap();
        let mapped =
            mv_linear::backward(algebra, x, linear, self.bias, &upstream, mv_linear::Needs::ALL).unwrap();
        Gradients {
            x: Some(ops::add(&found.x.unwrap(), &mapped.x.unwrap()).unwrap()),
            linear: mapped.w,
            bias: mapped.bias,
            w: found.w,
        }
    }
}

fn error(tested: &Array, expected: &Array) -> f64 {
    let wide = |array: &Array| array.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
    wide(tested).relative_error(&wide(expected)).unwrap()
}

fn close(what: &str, tested: &Gradients, expected: &Gradients, bound: f64) {
    for (name, tested, expected) in [
        ("x", &tested.x, &expected.x),
        ("linear", &tested.linear, &expected.linear),
        ("bias", &tested.bias, &expected.bias),
        ("w", &tested.w, &expected.w),
    ] {
        let (Some(tested), Some(expected)) = (tested, expected) else {
            panic!("{what}: no gradient of {name}")
        };
        assert_eq!(tested.shape(), expected.shape(), "{what}, {name}");
        let error = error(tested, expected);
        assert!(error <= bound, "{what}, gradient of {name}: relative error {error:e} > {bound:e}");
    }
}

fn bits(gradients: &Gradients) -> Vec<Option<Vec<u32>>> {
    let Gradients { x, linear, bias, w } = gradients;
    let bits = |array: &Array| array.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    [x, linear, bias, w].into_iter().map(|array| array.as_ref().map(bits)).collect()
}

/// One, two, four and eight rows at a time, with and without idle threads; one group to a block and several.
const SERVED: [(Signature, &[(usize, usize)]); 4] = [
    (Signature::CL3, &[(1024, 64), (1032, 100), (1024, 192), (1056, 324), (2048, 512), (4096, 256)]),
    (Signature::CL2, &[(1024, 64), (1032, 68), (2048, 256), (1024, 512)]),
    (Signature::new(1, 3, 0), &[(1024, 64), (1032, 100), (2048, 256)]),
    (Signature::new(3, 0, 1), &[(1024, 72), (2080, 128), (1024, 256)]),
];

fn agrees_with_the_operators_that_the_layer_joins(device: &Device) {
    debug::set(true);
    for (signature, sizes) in SERVED {
        for &size in sizes {
            let what = format!("{signature} {size:?}");
            let case = Case::new(signature, size, DType::F32, device);
            Compute::Tf32.scope(|| {
                let (found, ran) = case.observed(NEEDED, true);
                assert!(ran, "{what}: written transposed");
                // The same arithmetic but for the order in which rows are added.
                close(&what, &found, &case.composed(), 5e-5);
            });
        }
    }
}

fn is_as_close_to_double_precision_as_they_are(device: &Device) {
    debug::set(true);
    for (signature, size) in [(Signature::CL3, (1032, 100)), (Signature::CL2, (1024, 500))] {
        let case = Case::new(signature, size, DType::F32, device);
        let (found, composed) = Compute::Tf32.scope(|| {
            let (found, ran) = case.observed(NEEDED, true);
            assert!(ran);
            (found, case.composed())
        });
        let expected = case.layer(case.reference(), NEEDED, true);
        let errors = |gradients: &Gradients| {
            let Gradients { x, linear, bias, w } = gradients;
            let pairs = [x, linear, bias, w].into_iter().zip([
                &expected.x,
                &expected.linear,
                &expected.bias,
                &expected.w,
            ]);
            let errors =
                pairs.map(|(found, expected)| error(found.as_ref().unwrap(), expected.as_ref().unwrap()));
            errors.collect::<Vec<_>>()
        };
        for (error, usual) in errors(&found).into_iter().zip(errors(&composed)) {
            // TF32 throughout, and a gate and a norm between the products.
            assert!(
                error <= 1.1 * usual && error < 1e-2,
                "{signature} {size:?}: {error:e}, {usual:e} otherwise"
            );
        }
    }
}

fn the_same_inputs_give_the_same_bits(device: &Device) {
    debug::set(true);
    for size in [(2048, 512), (2112, 128), (1024, 324)] {
        let case = Case::new(Signature::CL3, size, DType::F32, device);
        Compute::Tf32.scope(|| {
            let (first, ran) = case.observed(NEEDED, true);
            assert!(ran);
            for round in 0..5 {
                // Every other time y is computed again.
                assert!(bits(&case.observed(NEEDED, round % 2 == 0).0) == bits(&first), "{size:?}");
            }
        });
    }
}

fn any_of_the_gradients_can_be_left_out(device: &Device) {
    debug::set(true);
    let mut case = Case::new(Signature::CL3, (1040, 132), DType::F32, device);
    for bias in [Bias::Scalar, Bias::AllBlades] {
        case.bias = bias;
        Compute::Tf32.scope(|| {
            let (all, composed) = (case.observed(NEEDED, true).0, case.composed());
            for mask in 1..16_u32 {
                let needs = [0, 1, 2, 3].map(|bit| mask >> bit & 1 == 1);
                let (found, ran) = case.observed(needs, true);
                // Only the products for x and the matrices read it transposed.
                assert_eq!(ran, needs[0] || needs[1], "{needs:?}");
                let there = [&found.x, &found.linear, &found.bias, &found.w].map(Option::is_some);
                assert_eq!(there, needs);
                // What is computed by rows adds them in another order, and so does a sum for the bias alone.
                let expected = if ran { &all } else { &composed };
                for (found, expected) in
                    [(&found.x, &all.x), (&found.linear, &all.linear), (&found.w, &expected.w)]
                {
                    let (Some(found), Some(expected)) = (found, expected) else { continue };
                    assert!(found.to_vec::<f32>().unwrap() == expected.to_vec::<f32>().unwrap(), "{needs:?}");
                }
                if let (Some(found), Some(expected)) = (&found.bias, &composed.bias) {
                    assert!(error(found, expected) < 1e-5, "{needs:?}: {:e}", error(found, expected));
                }
            }
        });
    }
}

fn maps_take_gradients_that_lie_transposed(device: &Device) {
    debug::set(true);
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (rows, inputs, outputs) = (200, 72, 136);
    let mut rng = rng(5);
    let mut random = |shape: &[usize]| Array::randn(shape, DType::F32, device, &mut rng).unwrap();
    let (x, lying) = (random(&[8, rows, inputs]), random(&[8 * outputs * rows + 1]));
    for w in [random(&[4, inputs, outputs]), random(&[inputs, outputs])] {
        // The copy engine reads only the first.
        for start in [0, 1] {
            let turned = lying.slice(0, start..start + 8 * outputs * rows).unwrap();
            let turned = turned.reshape([8, outputs, rows]).unwrap().transpose(1, 2).unwrap();
            for compute in [Compute::Tf32, Compute::Exact] {
                compute.scope(|| {
                    let run = |grad: &Array| {
                        let bias = Bias::AllBlades;
                        let found =
                            mv_linear::backward(&algebra, &x, &w, bias, grad, mv_linear::Needs::ALL).unwrap();
                        Gradients { x: found.x, linear: found.w, bias: found.bias, w: Some(x.clone()) }
                    };
                    let what = format!("{} from {start}, {compute}", w.shape());
                    close(&what, &run(&turned), &run(&turned.contiguous().unwrap()), 1e-5);
                });
            }
        }
    }
}

fn other_cases_go_by_rows(device: &Device) {
    debug::set(true);
    let f32 = DType::F32;
    for (what, size, dtype, compute) in [
        ("an incomplete group", (1028, 128), f32, Compute::Tf32),
        ("rows of the transpose that the copy engine cannot read", (1023, 128), f32, Compute::Tf32),
        ("a second round for one group", (1064, 128), f32, Compute::Tf32),
        ("few groups", (256, 128), f32, Compute::Tf32),
        ("small tiles", (1024, 60), f32, Compute::Tf32),
        ("slices of a cluster", (1024, 1024), f32, Compute::Tf32),
        ("exact products", (1024, 128), f32, Compute::Exact),
        ("16 bits", (1024, 128), DType::BF16, Compute::Tf32),
    ] {
        let case = Case::new(Signature::CL3, size, dtype, device);
        compute.scope(|| {
            let (found, ran) = case.observed(NEEDED, true);
            assert!(!ran, "{what}");
            let bound = if dtype == f32 { 5e-5 } else { 4e-2 };
            close(what, &found, &case.composed(), bound);
        });
    }
}

gradewise_testing::main!(if usable;
    agrees_with_the_operators_that_the_layer_joins,
    is_as_close_to_double_precision_as_they_are,
    the_same_inputs_give_the_same_bits,
    any_of_the_gradients_can_be_left_out,
    maps_take_gradients_that_lie_transposed,
    other_cases_go_by_rows,
);
