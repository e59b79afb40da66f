//! Cases of the fused product, by one family of kernels for compute capability 9.0 and on the CPU in double precision, and what every such
//! family has to hold.

#![allow(dead_code, reason = "each test file uses a part")]

use crate::common::{Pair, launched, rng, tolerance};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, build_info, debug,
    ops::clifford::sgp::{self, Needs, Operands, Product, ProductGradients, ProductOptions},
};

const BOTH: ProductOptions = ProductOptions { gate: true, normalize: true };
pub const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// A device with clusters of blocks, and enough shared memory for all cases.
pub fn usable(device: &CudaDevice) -> Result<(), String> {
    if device.info().compute_capability == (9, 0) && build_info().targets.contains(&"90a") {
        return Ok(());
    }
    Err("not a device of compute capability 9.0 with kernels for sm_90a".to_owned())
}

/// The families are `sm90` and `four_lanes`, as in the kernels' names.
pub struct Case {
    family: &'static str,
    algebra: Algebra,
    dtype: DType,
    /// x, y, the weights and the gradient of the output.
    arrays: [Pair; 4],
}

impl Case {
    pub fn new(
        family: &'static str,
        signature: Signature,
        (rows, features): (usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Self {
        debug::set(true);
        let algebra = Algebra::new(signature).unwrap();
        let (blades, paths) = (algebra.blade_count(), algebra.paths().len());
        let mut rng = rng((rows * 10_000 + features) as u64);
        let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
        let rows = [blades, rows, features];
        let arrays = [random(&rows), random(&rows), random(&[features, paths]), random(&rows)];
        Self { family, algebra, dtype, arrays }
    }

    fn tested(&self) -> [&Array; 4] {
        self.arrays.each_ref().map(|pair| &pair.tested)
    }

    fn forward(&self, [x, y, w, _]: [&Array; 4]) -> Product {
        sgp::forward(&self.algebra, &Operands { x, y, w }, BOTH).unwrap()
    }

    fn backward(&self, [x, y, w, grad]: [&Array; 4], product: &Product, needs: Needs) -> ProductGradients {
        sgp::backward(&self.algebra, &Operands { x, y, w }, BOTH, product, grad, needs).unwrap()
    }

    fn run(&self, arrays: [&Array; 4], needs: Needs) -> (Product, ProductGradients) {
        let product = self.forward(arrays);
        let gradients = self.backward(arrays, &product, needs);
        (product, gradients)
    }

    /// What is computed on the device, and whether the kernels in question ran, forward and backward.
    pub fn observed(&self, needs: Needs) -> (Product, ProductGradients, [bool; 2]) {
        let Signature { p, q, r } = self.algebra.signature();
        // Each pass by itself: a general backward pass takes more launches than are remembered.
        let (product, forward) = launched(|| self.forward(self.tested()));
        let (gradients, backward) = launched(|| self.backward(self.tested(), &product, needs));
        let ran = [("fwd", forward), ("bwd", backward)].map(|(pass, launches)| {
            let kernel = format!("gw_sgp_{}_{pass}_{p}_{q}_{r}_{} ", self.family, self.dtype);
            launches.iter().any(|work| work.starts_with(&kernel))
        });
        (product, gradients, ran)
    }

    /// The same on the CPU in double precision.
    pub fn expected(&self, needs: Needs) -> (Product, ProductGradients) {
        self.run(self.arrays.each_ref().map(|pair| &pair.reference), needs)
    }

    /// Asserts that the kernels in question run as said, forward and backward, and agree with double precision.
    pub fn agrees(&self, what: &str, runs: [bool; 2]) {
        let (product, gradients, ran) = self.observed(Needs::ALL);
        assert_eq!(ran, runs, "{what}");
        let (expected, derivatives) = self.expected(Needs::ALL);
        let bound = tolerance(self.dtype);
        close(what, Some(&product.output), Some(&expected.output), bound);
        close(what, product.inverse_rms.as_ref(), expected.inverse_rms.as_ref(), bound);
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

    /// Asserts that each gradient has the same bits whichever others are wanted.
    pub fn leaves_out_any_gradient(&self) {
        let (product, all, _) = self.observed(Needs::ALL);
        for mask in 1..8_u32 {
            let [x, y, w] = [0, 1, 2].map(|bit| mask >> bit & 1 == 1);
            let (again, found, ran) = self.observed(Needs { x, y, w });
            assert!(ran[1], "{mask}");
            assert!(bits(Some(&again.output)) == bits(Some(&product.output)));
            for (name, needed, found, all) in
                [("x", x, &found.x, &all.x), ("y", y, &found.y, &all.y), ("w", w, &found.w, &all.w)]
            {
                let expected = if needed { bits(all.as_ref()) } else { None };
                assert!(bits(found.as_ref()) == expected, "{} {mask}, gradient of {name}", self.dtype);
            }
        }
    }

    /// Asserts that a NaN in a row of x makes NaN of all results of that row, and of no others.
    pub fn keeps_nan_in_its_row(&self, broken: usize) {
        let [x, y, w, grad] = self.tested();
        let [_, rows, features] = x.dims()[..] else { panic!("{}", x.shape()) };
        let mut values = x.to_f64_vec().unwrap();
        values[broken * features + 17] = f64::NAN;
        let x = Array::from_vec(values, x.shape(), &Device::Cpu).unwrap().cast(self.dtype).unwrap();
        let x = x.to_device(&y.device()).unwrap();
        let (product, gradients) = self.run([&x, y, w, grad], Needs { x: true, y: true, w: false });
        for array in [&product.output, &gradients.x.unwrap(), &gradients.y.unwrap()] {
            for (at, value) in array.to_f64_vec().unwrap().into_iter().enumerate() {
                let is_broken = at / features % rows == broken;
                assert_eq!(value.is_nan(), is_broken, "{}: {value} at {at}", self.dtype);
            }
        }
    }
}

fn wide(array: &Array) -> Array {
    array.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap()
}

pub fn close(what: &str, tested: Option<&Array>, expected: Option<&Array>, bound: f64) {
    let (Some(tested), Some(expected)) = (tested, expected) else { panic!("{what}: not there") };
    assert_eq!(tested.shape(), expected.shape(), "{what}");
    let error = wide(tested).relative_error(&wide(expected)).unwrap();
    assert!(error <= bound, "{what}: relative error {error:e} > {bound:e}");
}

fn bits(array: Option<&Array>) -> Option<Vec<u64>> {
    array.map(|array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect())
}
