//! Operators on fields on CUDA, every engine at sizes that reach it, against the CPU in double precision.

mod common;

use common::{Pair, launched, rng, tolerance};
use gradewise_kernels::{
    Array, Compute, DType, Device, Products, Result, build_info, debug,
    ops::fields::{
        blade_matrix,
        convolution::{self, Axis, Geometry},
    },
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

/// Strides of 1 and enough positions for the kernels of compute capability 9.0: extents on both sides of boxes, dilations, uneven padding,
/// even numbers of taps, channels that fill lines and channels that do not, boxes of several samples.
fn wide_cases() -> Vec<Case> {
    let same = |size, taps| Axis::convolution(size, taps, 1, 1, [taps / 2, taps / 2]);
    let apart = |size, by| Axis::convolution(size, 3, 1, by, [by, by]);
    vec![
        Case::new(&[same(65, 3), apart(72, 2)], 1, 2, [2, 64, 2, 64]),
        Case::new(
            &[Axis::convolution(66, 3, 1, 1, [0, 0]), Axis::convolution(76, 2, 1, 1, [1, 0])],
            1,
            1,
            [4, 48, 4, 72],
        ),
        Case::new(&[same(18, 3), apart(17, 2), same(20, 3)], 1, 2, [4, 32, 4, 32]),
        Case::new(&[Axis::convolution(6000, 5, 1, 3, [7, 4])], 1, 1, [2, 64, 2, 32]),
        Case::new(&[same(12, 3), same(13, 3)], 1, 64, [2, 64, 2, 64]),
        Case::new(&[same(5, 3), same(8, 1), same(4, 3)], 1, 48, [1, 128, 1, 192]),
        Case::new(&[Axis::convolution(9000, 1, 1, 1, [0, 0])], 1, 1, [4, 64, 4, 64]),
    ]
}

/// Channels that tiles of 96 or 192 columns fit and tiles of 128 rows do not, as in [`wide_cases`], and for each the kernels that must then
/// run: f32 exactly and in TF32, and 16 bits. So many positions, or terms of long sums, that those tiles are the faster ones.
fn fitting_cases() -> Vec<(Case, [&'static [&'static str]; 3])> {
    let same = |size, taps| Axis::convolution(size, taps, 1, 1, [taps / 2, taps / 2]);
    const EXACT: &[&str] = &["exact_forward_96", "exact_gradient_96"];
    const FORWARD: &[&str] = &["forward_192"];
    const BOTH: &[&str] = &["forward_192", "gradient_192"];
    vec![
        // 192 columns that are several blades, of several samples; tails of boxes along both axes.
        (
            Case::new(&[same(61, 3), Axis::convolution(68, 2, 1, 3, [1, 2])], 1, 5, [1, 64, 4, 48]),
            [EXACT, BOTH, FORWARD],
        ),
        // One sample of odd extents; both the convolution and its adjoint have 192 columns.
        (Case::new(&[same(18, 1), same(17, 2), same(60, 1)], 1, 1, [4, 48, 4, 48]), [EXACT, BOTH, FORWARD]),
        // 96 columns; in 16 bits, terms that fill a piece and a half of each tap.
        (Case::new(&[same(40, 3), same(36, 3)], 1, 3, [2, 48, 2, 48]), [EXACT, &[], &["gradient"]]),
        // Empty columns, and a sum whose last step is partly empty in 16 bits.
        (
            Case::new(&[Axis::convolution(9001, 3, 1, 2, [2, 2])], 1, 2, [4, 40, 4, 40]),
            [&EXACT[..1], FORWARD, FORWARD],
        ),
        // Several tiles of columns.
        (Case::new(&[same(40, 3), same(36, 3)], 1, 3, [1, 64, 6, 48]), [EXACT, &["gradient_192"], &[]]),
        // Sums whose stretches are few, with rows beyond the last tap.
        (
            Case::new(&[same(63, 7), same(68, 7)], 1, 1, [2, 64, 4, 48]),
            [EXACT, &["gradient_192"], &["gradient_192"]],
        ),
        (Case::new(&[same(25, 7), same(68, 7)], 1, 1, [2, 64, 2, 48]), [EXACT, &["gradient_96"], &[]]),
    ]
}

/// Whether kernels of compute capability 9.0 run.
fn has_warpgroups(device: &Device) -> bool {
    let Device::Cuda(cuda) = device else { panic!("a GPU was asked for") };
    cuda.info().compute_capability == (9, 0)
        && build_info().targets.contains(&"90a")
        && cuda.options().products == Products::All
}

/// The three faces of a case, on the device and in double precision on the CPU, and what each launched: the log of a device is short.
fn faces(case: &Case, dtype: DType, device: &Device, seed: u64) -> [(&'static str, Pair, Vec<String>); 3] {
    let (mut rng, geometry) = (rng(seed), Geometry::new(&case.axes, case.groups).unwrap());
    let [x, y, w] = case.shapes().map(|shape| Pair::randn(shape, dtype, device, &mut rng));
    let both = |name, face: &dyn Fn(&Array, &Array) -> Result<Array>, a: &Pair, b: &Pair| {
        let (tested, launches) = launched(|| face(&a.tested, &b.tested).unwrap());
        (name, Pair { tested, reference: face(&a.reference, &b.reference).unwrap() }, launches)
    };
    [
        both("forward", &|x, w| convolution::forward(&geometry, x, w), &x, &w),
        both("adjoint", &|y, w| convolution::adjoint(&geometry, y, w), &y, &w),
        both("kernel", &|x, y| convolution::kernel(&geometry, x, y), &x, &y),
    ]
}

fn error(pair: &Pair) -> f64 {
    let wide = pair.tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
    wide.relative_error(&pair.reference).unwrap()
}

/// Compares the faces of a case; gives what they launched.
fn check(case: &Case, dtype: DType, device: &Device, seed: u64, bound: f64) -> Vec<String> {
    let mut all = Vec::new();
    for (name, pair, launches) in faces(case, dtype, device, seed) {
        all.extend(launches);
        assert_eq!(pair.tested.shape(), pair.reference.shape());
        let error = if pair.tested.elements() == 0 { 0.0 } else { error(&pair) };
        assert!(error <= bound, "case {seed}, {dtype}, {}, {name}: {error:.1e}", Compute::current());
    }
    all
}

fn every_face_agrees_with_double_precision(device: &Device) {
    for (number, case) in cases().iter().enumerate() {
        for dtype in DType::ALL {
            check(case, dtype, device, number as u64, tolerance(dtype));
        }
    }
}

fn every_face_of_large_fields_agrees_with_double_precision(device: &Device) {
    for (number, case) in wide_cases().iter().enumerate() {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            check(case, dtype, device, number as u64, tolerance(dtype));
        }
        Compute::Tf32.scope(|| check(case, DType::F32, device, number as u64, 1e-3));
    }
}

fn tiles_that_fit_the_channels_agree_with_double_precision(device: &Device) {
    debug::set(true);
    for (number, (case, expected)) in fitting_cases().iter().enumerate() {
        let [exact, tf32, sixteen] = *expected;
        for (dtype, compute, kernels, bound) in [
            (DType::F32, Compute::Exact, exact, tolerance(DType::F32)),
            (DType::F32, Compute::Tf32, tf32, 1e-3),
            (DType::BF16, Compute::Exact, sixteen, tolerance(DType::BF16)),
            (DType::F16, Compute::Exact, sixteen, tolerance(DType::F16)),
        ] {
            let launches = compute.scope(|| check(case, dtype, device, number as u64, bound));
            for kernel in kernels.iter().map(|kernel| format!("gw_field_hopper_{kernel}_{dtype} ")) {
                let ran = launches.iter().any(|work| work.starts_with(&kernel));
                assert!(ran || !has_warpgroups(device), "case {number}, {kernel}: {launches:?}");
            }
        }
    }
}

fn engines_are_chosen_by_the_stride_and_the_precision(device: &Device) {
    debug::set(true);
    let Device::Cuda(cuda) = device else { panic!("a GPU was asked for") };
    let capability = cuda.info().compute_capability;
    let has_warpgroups = has_warpgroups(device);
    // Without tensor cores for f32, or without their use, there is one engine.
    let one = capability.0 < 8 || cuda.options().products == Products::Plain;
    let strided = |size| Axis::convolution(size, 3, 2, 1, [1, 1]);
    let strided = Case::new(&[strided(80), strided(66)], 1, 3, [2, 64, 2, 64]);
    let wide = &wide_cases()[0];
    for (compute, bound) in [(Compute::Tf32, 1e-3), (Compute::Exact, 1e-6)] {
        let exact = compute == Compute::Exact;
        let warps = [["gather_warp", "gradient_warp"], ["gather_exact", "gradient_exact"]];
        let groups =
            [["hopper_forward", "hopper_gradient"], ["hopper_exact_forward", "hopper_exact_gradient"]];
        for (case, kernels) in [(&strided, warps), (wide, if has_warpgroups { groups } else { warps })] {
            let launches = compute.scope(|| check(case, DType::F32, device, 1, bound));
            for kernel in kernels[usize::from(exact)].map(|kernel| format!("gw_field_{kernel}_f32 ")) {
                let ran = launches.iter().any(|work| work.starts_with(&kernel));
                assert!(ran || one, "{kernel}: {launches:?}");
            }
        }
    }
}

fn a_matrix_on_the_blades_agrees_with_double_precision(device: &Device) {
    let mut rng = rng(7);
    for (blades, space, channels) in
        [(2, 1, 1), (4, 1000, 3), (8, 333, 64), (4, 65, 24), (2, 0, 8), (8, 5, 1)]
    {
        let matrix = Array::randn([blades, blades], DType::F64, &Device::Cpu, &mut rng).unwrap();
        let entries = matrix.to_f64_vec().unwrap();
        for dtype in DType::ALL {
            let x = Pair::randn([blades, space, channels], dtype, device, &mut rng);
            let bias = Pair::randn([blades, channels], dtype, device, &mut rng);
            for bias in [None, Some(&bias)] {
                let pair = Pair {
                    tested: blade_matrix(&entries, &x.tested, bias.map(|b| &b.tested)).unwrap(),
                    reference: blade_matrix(&entries, &x.reference, bias.map(|b| &b.reference)).unwrap(),
                };
                let error = if space == 0 { 0.0 } else { error(&pair) };
                assert!(error <= tolerance(dtype), "{blades} {space} {channels}, {dtype}: {error:.1e}");
            }
        }
    }
}

fn the_same_inputs_give_the_same_bits(device: &Device) {
    let fitting = fitting_cases().into_iter().map(|(case, _)| case).take(3);
    let all = cases().into_iter().chain(wide_cases().into_iter().take(3)).chain(fitting);
    for (number, case) in all.enumerate() {
        for (dtype, compute) in
            [(DType::F32, Compute::Exact), (DType::F32, Compute::Tf32), (DType::BF16, Compute::Exact)]
        {
            let bits = || -> Vec<Vec<u64>> {
                let bits =
                    |pair: &Pair| pair.tested.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect();
                let faces = compute.scope(|| faces(&case, dtype, device, 3));
                faces.iter().map(|(_, pair, _)| bits(pair)).collect()
            };
            assert!(bits() == bits(), "case {number}, {dtype}, {compute}");
        }
    }
}

gradewise_testing::main!(
    every_face_agrees_with_double_precision,
    every_face_of_large_fields_agrees_with_double_precision,
    tiles_that_fit_the_channels_agree_with_double_precision,
    engines_are_chosen_by_the_stride_and_the_precision,
    a_matrix_on_the_blades_agrees_with_double_precision,
    the_same_inputs_give_the_same_bits,
);
