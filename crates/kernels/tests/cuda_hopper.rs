//! The weighted product by the kernels for sm_90a (csrc/clifford/sgp_hopper.cuh), against the CPU in double precision.

mod common;

use common::{Pair, launched, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, build_info, debug,
    ops::clifford::sgp::{self, Product, ProductGradients, ProductOptions},
};

const BOTH: ProductOptions = ProductOptions { gate: true, normalize: true };
const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

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
    fn new(signature: Signature, (rows, features): (usize, usize), dtype: DType, device: &Device) -> Self {
        let algebra = Algebra::new(signature).unwrap();
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

    fn run(&self, [x, y, w, grad]: [&Array; 4], needs: [bool; 3]) -> (Product, ProductGradients) {
        let operands = sgp::Operands { x, y, w };
        let product = sgp::forward(&self.algebra, &operands, BOTH).unwrap();
        let needs = sgp::Needs { x: needs[0], y: needs[1], w: needs[2] };
        let gradients = sgp::backward(&self.algebra, &operands, BOTH, &product, grad, needs).unwrap();
        (product, gradients)
    }

    /// What is computed on the device, and whether the kernels in question ran, forward and backward.
    fn observed(&self, needs: [bool; 3]) -> (Product, ProductGradients, [bool; 2]) {
        let Signature { p, q, r } = self.algebra.signature();
        let ((product, gradients), launches) = launched(|| self.run(self.tested(), needs));
        let ran = ["fwd", "bwd"].map(|pass| {
            let kernel = format!("gw_sgp_hopper_{pass}_{p}_{q}_{r}_{} ", self.dtype);
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

/// Rows and features: one row and fewer rows than blocks, tails of rows that are worked on at a time, idle threads, more turns than stages,
/// and two to eight slices of a cluster, also with idle threads.
const SIZES: [(usize, usize); 12] = [
    (1, 32),
    (7, 40),
    (333, 96),
    (2500, 64),
    (1003, 200),
    (600, 512),
    (1111, 520),
    (300, 1024),
    (77, 1032),
    (150, 2048),
    (41, 2072),
    (35, 4096),
];

fn agrees_with_double_precision(device: &Device) {
    debug::set(true);
    for signature in [Signature::CL3, Signature::CL2, Signature::new(1, 3, 0), Signature::new(3, 0, 1)] {
        for (rows, features) in SIZES {
            // Of 16 blades, half as many features fit into the slices of a cluster.
            let features =
                if signature.p + signature.q + signature.r == 4 { features.min(2048) } else { features };
            for dtype in DTYPES {
                let case = Case::new(signature, (rows, features), dtype, device);
                let what = format!("{signature} {rows}x{features} {dtype}");
                let (product, gradients, ran) = case.observed([true; 3]);
                // Where a block has whole rows of f32, another kernel is as fast.
                let widest = if signature.p + signature.q + signature.r == 4 { 256 } else { 512 };
                assert_eq!(ran, [dtype != DType::F32 || features > widest, true], "{what}");
                let (expected, derivatives) =
                    case.run(case.arrays.each_ref().map(|pair| &pair.reference), [true; 3]);
                let bound = tolerance(dtype);
                close(&what, Some(&product.output), Some(&expected.output), bound);
                close(&what, product.inverse_rms.as_ref(), expected.inverse_rms.as_ref(), bound);
                for (name, tested, expected) in [
                    ("x", &gradients.x, &derivatives.x),
                    ("y", &gradients.y, &derivatives.y),
                    ("w", &gradients.w, &derivatives.w),
                ] {
                    // The norm's gradient is a difference.
                    close(
                        &format!("{what}, gradient of {name}"),
                        tested.as_ref(),
                        expected.as_ref(),
                        4.0 * bound,
                    );
                }
            }
        }
    }
}

/// Those with more features than csrc/clifford/sgp_quads.cuh can take.
fn long_products_of_32_blades_go_forward_this_way(device: &Device) {
    debug::set(true);
    for signature in [Signature::new(4, 1, 0), Signature::new(5, 0, 0)] {
        for (rows, features) in [(3, 1032), (40, 2048)] {
            for dtype in DTYPES {
                let case = Case::new(signature, (rows, features), dtype, device);
                let what = format!("{signature} {rows}x{features} {dtype}");
                let (product, _, ran) = case.observed([true; 3]);
                assert_eq!(ran, [true, false], "{what}");
                let (expected, _) = case.run(case.arrays.each_ref().map(|pair| &pair.reference), [false; 3]);
                close(&what, Some(&product.output), Some(&expected.output), tolerance(dtype));
            }
        }
    }
}

fn bits(array: Option<&Array>) -> Option<Vec<u64>> {
    array.map(|array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect())
}

fn the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out(device: &Device) {
    debug::set(true);
    for (size, dtype) in [((900, 512), DType::BF16), ((501, 1040), DType::F32), ((2000, 96), DType::F16)] {
        let case = Case::new(Signature::CL3, size, dtype, device);
        let (product, all, _) = case.observed([true; 3]);
        for mask in 1..8_u32 {
            let needs = [0, 1, 2].map(|bit| mask >> bit & 1 == 1);
            let (again, found, ran) = case.observed(needs);
            assert!(ran[1], "{needs:?}");
            assert!(bits(Some(&again.output)) == bits(Some(&product.output)));
            for (position, (found, all)) in
                [(&found.x, &all.x), (&found.y, &all.y), (&found.w, &all.w)].into_iter().enumerate()
            {
                let expected = if needs[position] { bits(all.as_ref()) } else { None };
                assert!(bits(found.as_ref()) == expected, "{size:?} {dtype} {needs:?}, gradient {position}");
            }
        }
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) {
    debug::set(true);
    let (rows, features, broken) = (300, 512, 133);
    for dtype in [DType::BF16, DType::F16] {
        let case = Case::new(Signature::CL3, (rows, features), dtype, device);
        let [x, y, w, grad] = case.tested();
        let mut values = x.to_f64_vec().unwrap();
        values[broken * features + 17] = f64::NAN;
        let x = Array::from_vec(values, x.shape(), &Device::Cpu)
            .unwrap()
            .cast(dtype)
            .unwrap()
            .to_device(device)
            .unwrap();
        let (product, gradients) = case.run([&x, y, w, grad], [true, true, false]);
        for array in [&product.output, &gradients.x.unwrap(), &gradients.y.unwrap()] {
            for (at, value) in array.to_f64_vec().unwrap().into_iter().enumerate() {
                assert_eq!(value.is_nan(), at / features % rows == broken, "{dtype}: {value} at {at}");
            }
        }
    }
}

gradewise_testing::main!(if usable;
    agrees_with_double_precision,
    long_products_of_32_blades_go_forward_this_way,
    the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out,
    what_is_not_a_number_stays_in_its_row,
);
