//! The weighted product of 32 blades by the kernels with four lanes per feature (csrc/clifford/sgp_quads.cuh), against the CPU in double
//! precision.

mod common;

use common::{Pair, launched, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, build_info, debug,
    ops::clifford::sgp::{self, Needs, Operands, Product, ProductGradients, ProductOptions},
};

const BOTH: ProductOptions = ProductOptions { gate: true, normalize: true };
const SIGNATURES: [(u8, u8, u8); 2] = [(4, 1, 0), (5, 0, 0)];
const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// A device with clusters of blocks, and enough shared memory for all cases.
fn usable(device: &CudaDevice) -> Result<(), String> {
    if device.info().compute_capability == (9, 0) && build_info().targets.contains(&"90a") {
        return Ok(());
    }
    Err("not a device of compute capability 9.0 with kernels for sm_90a".to_owned())
}

struct Case {
    algebra: Algebra,
    dtype: DType,
    /// x, y, the weights and the gradient of the output.
    arrays: [Pair; 4],
}

impl Case {
    fn new((p, q, r): (u8, u8, u8), (rows, features): (usize, usize), dtype: DType, device: &Device) -> Self {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        let (blades, paths) = (algebra.blade_count(), algebra.paths().len());
        let mut rng = rng((rows * 10_000 + features) as u64);
        let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
        let rows = [blades, rows, features];
        let arrays = [random(&rows), random(&rows), random(&[features, paths]), random(&rows)];
        Self { algebra, dtype, arrays }
    }

    fn tested(&self) -> [&Array; 4] {
        self.arrays.each_ref().map(|pair| &pair.tested)
    }

    fn run(&self, [x, y, w, grad]: [&Array; 4], needs: Needs) -> (Product, ProductGradients) {
        let operands = Operands { x, y, w };
        let product = sgp::forward(&self.algebra, &operands, BOTH).unwrap();
        let gradients = sgp::backward(&self.algebra, &operands, BOTH, &product, grad, needs).unwrap();
        (product, gradients)
    }

    /// What is computed on the device, and whether the kernels in question ran, forward and backward.
    fn observed(&self, needs: Needs) -> (Product, ProductGradients, [bool; 2]) {
        let Signature { p, q, r } = self.algebra.signature();
        let ((product, gradients), launches) = launched(|| self.run(self.tested(), needs));
        let ran = ["fwd", "bwd"].map(|pass| {
            let kernel = format!("gw_sgp_quads_{pass}_{p}_{q}_{r}_{} ", self.dtype);
            launches.iter().any(|work| work.starts_with(&kernel))
        });
        (product, gradients, ran)
    }
}

fn wide(array: &Array) -> Array {
    array.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap()
}

fn close(what: &str, tested: Option<&Array>, expected: Option<&Array>, bound: f64) {
    let (Some(tested), Some(expected)) = (tested, expected) else { panic!("{what}: not there") };
    assert_eq!(tested.shape(), expected.shape(), "{what}");
    let error = wide(tested).relative_error(&wide(expected)).unwrap();
    assert!(error <= bound, "{what}: relative error {error:e} > {bound:e}");
}

/// Rows and features: one row and fewer rows than blocks, tails of rows that are worked on at a time, warps with idle lanes, more turns
/// than stages, and two to eight slices of a cluster, also with idle lanes.
const SIZES: [(usize, usize); 10] = [
    (1, 32),
    (7, 40),
    (5, 48),
    (333, 96),
    (1500, 64),
    (700, 128),
    (291, 104),
    (150, 136),
    (77, 264),
    (35, 1024),
];

fn agrees_with_double_precision(device: &Device) {
    debug::set(true);
    for signature in SIGNATURES {
        for size in SIZES {
            for dtype in DTYPES {
                let case = Case::new(signature, size, dtype, device);
                let what = format!("{signature:?} {size:?} {dtype}");
                let (product, gradients, ran) = case.observed(Needs::ALL);
                assert_eq!(ran, [true; 2], "{what}");
                let (expected, derivatives) =
                    case.run(case.arrays.each_ref().map(|pair| &pair.reference), Needs::ALL);
                let bound = tolerance(dtype);
                close(&what, Some(&product.output), Some(&expected.output), bound);
                close(&what, product.inverse_rms.as_ref(), expected.inverse_rms.as_ref(), bound);
                for (name, tested, expected) in [
                    ("x", &gradients.x, &derivatives.x),
                    ("y", &gradients.y, &derivatives.y),
                    ("w", &gradients.w, &derivatives.w),
                ] {
                    let what = format!("{what}, gradient of {name}");
                    // The norm's gradient is a difference.
                    close(&what, tested.as_ref(), expected.as_ref(), 4.0 * bound);
                }
            }
        }
    }
}

/// A warp has eight features, of which a row of f32 may leave out the last four.
fn features_may_end_within_a_warp(device: &Device) {
    debug::set(true);
    for size in [(3, 36), (1701, 36), (50, 100), (21, 132)] {
        let case = Case::new((5, 0, 0), size, DType::F32, device);
        let (product, gradients, ran) = case.observed(Needs::ALL);
        assert_eq!(ran, [true; 2], "{size:?}");
        let (expected, derivatives) =
            case.run(case.arrays.each_ref().map(|pair| &pair.reference), Needs::ALL);
        let (what, bound) = (format!("{size:?}"), tolerance(DType::F32));
        close(&what, Some(&product.output), Some(&expected.output), bound);
        close(&what, gradients.x.as_ref(), derivatives.x.as_ref(), 4.0 * bound);
        close(&what, gradients.y.as_ref(), derivatives.y.as_ref(), 4.0 * bound);
        close(&what, gradients.w.as_ref(), derivatives.w.as_ref(), 4.0 * bound);
    }
}

fn bits(array: Option<&Array>) -> Option<Vec<u64>> {
    array.map(|array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect())
}

fn the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out(device: &Device) {
    debug::set(true);
    for (size, dtype) in [((600, 128), DType::F32), ((101, 264), DType::BF16), ((900, 48), DType::F16)] {
        let case = Case::new((4, 1, 0), size, dtype, device);
        let (product, all, _) = case.observed(Needs::ALL);
        for mask in 1..8_u32 {
            let [x, y, w] = [0, 1, 2].map(|bit| mask >> bit & 1 == 1);
            let (again, found, ran) = case.observed(Needs { x, y, w });
            assert!(ran[1], "{mask}");
            assert!(bits(Some(&again.output)) == bits(Some(&product.output)));
            for (needed, found, all) in [(x, &found.x, &all.x), (y, &found.y, &all.y), (w, &found.w, &all.w)]
            {
                let expected = if needed { bits(all.as_ref()) } else { None };
                assert!(bits(found.as_ref()) == expected, "{size:?} {dtype} {mask}");
            }
        }
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) {
    debug::set(true);
    let (rows, features, broken) = (300, 64, 133);
    for dtype in DTYPES {
        let case = Case::new((5, 0, 0), (rows, features), dtype, device);
        let [x, y, w, grad] = case.tested();
        let mut values = x.to_f64_vec().unwrap();
        values[broken * features + 17] = f64::NAN;
        let x = Array::from_vec(values, x.shape(), &Device::Cpu).unwrap();
        let x = x.cast(dtype).unwrap().to_device(device).unwrap();
        let (product, gradients) = case.run([&x, y, w, grad], Needs { x: true, y: true, w: false });
        for array in [&product.output, &gradients.x.unwrap(), &gradients.y.unwrap()] {
            for (at, value) in array.to_f64_vec().unwrap().into_iter().enumerate() {
                assert_eq!(value.is_nan(), at / features % rows == broken, "{dtype}: {value} at {at}");
            }
        }
    }
}

gradewise_testing::main!(if usable;
    agrees_with_double_precision,
    features_may_end_within_a_warp,
    the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out,
    what_is_not_a_number_stays_in_its_row,
);
