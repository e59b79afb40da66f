//! The convolution of fields on CUDA, every engine at sizes that reach it, against the CPU in double precision.

mod common;

use common::{Pair, launched, rng, tolerance};
use gradewise_kernels::{
    Array, Compute, DType, Device, Result, debug,
    ops::fields::convolution::{self, Axis, Geometry},
};

/// A convolution: its axes and groups, the batch, and blades and channels in and out.
struct Case {
    axes: Vec<Axis>,
    groups: usize,
    batch: usize,
    sizes: [usize; 4],
}

impl Case {
    fn new(axes: &[Axis], groups: usize, batch: usize, sizes: [usize; 4]) -> Self {
        Self { axes: axes.to_vec(), groups, batch, sizes }
    }

    fn shapes(&self) -> [Vec<usize>; 3] {
        let [i, c, j, o] = self.sizes;
        let extents = |size: fn(&Axis) -> usize| self.axes.iter().map(size).collect::<Vec<_>>();
        [
            [&[i, self.batch], &extents(|axis| axis.input)[..], &[c]].concat(),
            [&[j, self.batch], &extents(|axis| axis.output)[..], &[o]].concat(),
            [&[j, o, i], &extents(|axis| axis.kernel)[..], &[c / self.groups]].concat(),
        ]
    }
}

/// Rows, columns and depths on both sides of tiles, strides, dilations, groups and single channels in a group.
fn cases() -> Vec<Case> {
    let same = |size, taps| Axis::convolution(size, taps, 1, 1, [taps / 2, taps / 2]);
    vec![
        Case::new(&[same(17, 3), same(19, 3)], 1, 2, [4, 32, 4, 16]),
        Case::new(&[same(40, 3), same(33, 3)], 1, 3, [2, 64, 2, 64]),
        Case::new(
            &[Axis::convolution(20, 3, 2, 1, [1, 1]), Axis::convolution(21, 2, 1, 2, [0, 1])],
            1,
            2,
            [4, 16, 3, 24],
        ),
        Case::new(&[same(8, 3), same(7, 3), same(9, 3)], 1, 1, [8, 8, 8, 16]),
        Case::new(&[Axis::convolution(6, 2, 2, 1, [1, 0]), same(5, 1), same(6, 3)], 2, 2, [2, 32, 2, 16]),
        Case::new(&[Axis::convolution(300, 1, 1, 1, [0, 0])], 1, 2, [4, 48, 4, 48]),
        Case::new(&[same(17, 3)], 1, 2, [2, 5, 2, 3]),
        Case::new(&[same(70, 1), same(30, 3)], 40, 2, [4, 40, 4, 40]),
        Case::new(&[same(9, 3)], 3, 0, [2, 3, 2, 3]),
    ]
}

/// The three faces of a case, on the device and in double precision on the CPU.
fn faces(case: &Case, dtype: DType, device: &Device, seed: u64) -> [(&'static str, Pair); 3] {
    let (mut rng, geometry) = (rng(seed), Geometry::new(&case.axes, case.groups).unwrap());
    let [x, y, w] = case.shapes().map(|shape| Pair::randn(shape, dtype, device, &mut rng));
    let both = |face: &dyn Fn(&Array, &Array) -> Result<Array>, a: &Pair, b: &Pair| Pair {
        tested: face(&a.tested, &b.tested).unwrap(),
        reference: face(&a.reference, &b.reference).unwrap(),
    };
    [
        ("forward", both(&|x, w| convolution::forward(&geometry, x, w), &x, &w)),
        ("adjoint", both(&|y, w| convolution::adjoint(&geometry, y, w), &y, &w)),
        ("kernel", both(&|x, y| convolution::kernel(&geometry, x, y), &x, &y)),
    ]
}

fn error(pair: &Pair) -> f64 {
    let wide = pair.tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
    wide.relative_error(&pair.reference).unwrap()
}

fn every_face_agrees_with_double_precision(device: &Device) {
    for (number, case) in cases().iter().enumerate() {
        for dtype in DType::ALL {
            for (name, pair) in faces(case, dtype, device, number as u64) {
                assert_eq!(pair.tested.shape(), pair.reference.shape());
                let error = if pair.tested.elements() == 0 { 0.0 } else { error(&pair) };
                assert!(error <= tolerance(dtype), "case {number}, {dtype}, {name}: {error:.1e}");
            }
        }
    }
}

fn tf32_agrees_within_its_precision_and_is_another_engine(device: &Device) {
    debug::set(true);
    let case = &cases()[1];
    for (compute, engine, bound) in [(Compute::Tf32, "warp", 1e-3), (Compute::Exact, "exact", 1e-6)] {
        let (faces, launches) = launched(|| compute.scope(|| faces(case, DType::F32, device, 1)));
        for (name, pair) in &faces {
            assert!(error(pair) <= bound, "{compute}, {name}: {:.1e}", error(pair));
        }
        let Device::Cuda(cuda) = device else { panic!("a GPU was asked for") };
        if cuda.info().compute_capability.0 >= 8 {
            for face in ["gather", "gradient"] {
                let kernel = format!("gw_field_{face}_{engine}_f32 ");
                assert!(launches.iter().any(|work| work.starts_with(&kernel)), "{kernel}: {launches:?}");
            }
        }
    }
}

fn the_same_inputs_give_the_same_bits(device: &Device) {
    for (number, case) in cases().iter().enumerate() {
        for dtype in [DType::F32, DType::BF16] {
            let bits = || -> Vec<Vec<u64>> {
                let bits =
                    |pair: &Pair| pair.tested.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect();
                faces(case, dtype, device, 3).iter().map(|(_, pair)| bits(pair)).collect()
            };
            assert!(bits() == bits(), "case {number}, {dtype}");
        }
    }
}

gradewise_testing::main!(
    every_face_agrees_with_double_precision,
    tf32_agrees_within_its_precision_and_is_another_engine,
    the_same_inputs_give_the_same_bits,
);
