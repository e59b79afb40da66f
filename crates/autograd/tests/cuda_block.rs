//! The block of the equivariant networks on the GPU, in one operator, against its operators on the CPU in double precision; on both,
//! what it does with a residual.

use gradewise_autograd::{
    BackwardOptions, Tensor, autocast,
    clifford::{self, MvBlock},
    grad,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::{
    Array, Compute, Device,
    ops::{
        self,
        clifford::{mv_block as kernel, steerable_layer},
    },
};
use gradewise_testing::gpu;
use rand::SeedableRng;

/// Operands of a block and the cotangent of its output, in double precision on the CPU.
fn operands(algebra: &Algebra, (batch, inputs, n): (usize, usize, usize)) -> (Vec<Tensor>, Tensor) {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64((batch * 31 + inputs * 7 + n) as u64);
    let mut random = |shape: &[usize]| Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap();
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let operands = vec![
        random(&[blades, batch, inputs]),
        random(&[grades, inputs, n]),
        random(&[n]),
        random(&[n, grades]),
        random(&[n, grades]),
        random(&[grades, n, n]),
        random(&[n, grades]),
        random(&[n, paths]),
        random(&[grades, n, n]),
        random(&[n]),
        random(&[n]),
    ];
    (operands, random(&[blades, batch, n]))
}

/// A residual for an output like this.
fn random_like(output: &Tensor) -> Tensor {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(output.shape().elements() as u64);
    Tensor::randn(output.shape().clone(), DType::F64, &Device::Cpu, &mut rng).unwrap()
}

fn to(tensor: &Tensor, dtype: DType, device: &Device) -> Tensor {
    let array = tensor.array().cast(dtype).unwrap().to_device(device).unwrap();
    Tensor::new(array).requires_grad()
}

/// The output and the gradients of all operands.
fn run(algebra: &Algebra, all: &[Tensor], seed: &Tensor) -> Vec<Array> {
    let operands = MvBlock::from_all(all).unwrap();
    let output = clifford::mv_block(algebra, &operands).unwrap();
    let options = BackwardOptions::seed(seed.clone());
    let mut found = vec![output.array().clone()];
    let inputs: Vec<&Tensor> = all.iter().collect();
    found.extend(
        grad(&output, &inputs, &options)
            .unwrap()
            .into_iter()
            .map(|gradient| gradient.unwrap().array().clone()),
    );
    found
}

fn one_operator_computes_what_its_parts_compute(device: &Device) {
    // One row; odd widths; several rows per warp; inputs that take two rounds, also for more rows than are worked on at a time.
    let sizes =
        [(1, 1, 1), (3, 5, 2), (17, 29, 28), (500, 56, 28), (2000, 29, 28), (140, 67, 32), (2501, 67, 31)];
    for signature in [Signature::new(2, 0, 0), Signature::CL3] {
        let algebra = Algebra::new(signature).unwrap();
        for (size, residual) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            let (mut all, seed) = operands(&algebra, size);
            if residual {
                // As large as the rest of the sum.
                all.push(random_like(&seed));
            }
            let tested: Vec<Tensor> = all.iter().map(|operand| to(operand, DType::F32, device)).collect();
            let arrays: Vec<Array> = tested.iter().map(|tensor| tensor.array().clone()).collect();
            assert!(kernel::serves(&algebra, &kernel::Operands::from_all(&arrays).unwrap()), "{size:?}");
            let found = run(&algebra, &tested, &to(&seed, DType::F32, device));
            let again = run(&algebra, &tested, &to(&seed, DType::F32, device));
            let reference: Vec<Tensor> =
                all.iter().map(|operand| to(operand, DType::F64, &Device::Cpu)).collect();
            let expected = run(&algebra, &reference, &seed);
            for (position, ((found, again), expected)) in found.iter().zip(&again).zip(&expected).enumerate()
            {
                let found = found.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
                let again = again.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
                assert_eq!(
                    found.to_f64_vec().unwrap(),
                    again.to_f64_vec().unwrap(),
                    "the same bits each time"
                );
                let error = found.relative_error(expected).unwrap();
                // Norms over one or two features are nearly constant: their gradients are differences of equal numbers.
                let bound = if size.2 < 8 { 1e-3 } else { 5e-5 };
                assert!(
                    error <= bound,
                    "{signature} {size:?}, residual: {residual}, result {position}: {error:e} > {bound:e}"
                );
            }
        }
    }
}

/// Matrices that keep the size of features, as trained ones do: gates whose arguments are in the hundreds are steps, whose gradient neither
/// 16 bits nor sums of three TF32 products can give.
fn scaled(all: Vec<Tensor>, (_, inputs, n): (usize, usize, usize)) -> Vec<Tensor> {
    let scale = |(index, operand): (usize, Tensor)| match index {
        1 => operand.mul_scalar(1.0 / (inputs as f64).sqrt()).unwrap(),
        5 | 8 => operand.mul_scalar(1.0 / (n as f64).sqrt()).unwrap(),
        _ => operand,
    };
    all.into_iter().enumerate().map(scale).collect()
}

/// A block of `f32` on the device, with a residual, has the same bits each time, and those of double precision on the CPU within the bound
/// of each way to compute products.
fn agrees_with_the_cpu(
    device: &Device,
    signature: Signature,
    size: (usize, usize, usize),
    ways: &[(Compute, f64)],
) {
    let algebra = Algebra::new(signature).unwrap();
    let (all, seed) = operands(&algebra, size);
    let mut all = scaled(all, size);
    all.push(random_like(&seed));
    let on = |dtype, device: &Device| -> Vec<Array> {
        let all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
        let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
        let served = kernel::serves(&algebra, &kernel::Operands::from_all(&arrays).unwrap());
        assert!(served || matches!(device, Device::Cpu), "{signature} {size:?}");
        let found = run(&algebra, &all, &to(&seed, dtype, device));
        found.iter().map(|array| array.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap()).collect()
    };
    let expected = on(DType::F64, &Device::Cpu);
    for (compute, bound) in ways {
        let (found, again) = compute.scope(|| (on(DType::F32, device), on(DType::F32, device)));
        for (position, ((found, again), expected)) in found.iter().zip(&again).zip(&expected).enumerate() {
            assert_eq!(found.to_f64_vec().unwrap(), again.to_f64_vec().unwrap(), "the same bits each time");
            let error = found.relative_error(expected).unwrap();
            assert!(
                error <= *bound,
                "{signature} {size:?} {compute:?}, result {position}: {error:e} > {bound:e}"
            );
        }
    }
}

/// Whether so many rows are tested: fewer under a tool that slows every instruction down.
fn is_taken(rows: usize) -> bool {
    rows <= 500 || std::env::var_os("GRADEWISE_TEST_SEEDS").is_none()
}

/// Blocks of 16 and 32 blades, whose quadratic forms may cancel: as far from the CPU's double precision as its single precision is, or a little
/// more. Widths for half warps and whole ones, that fill no quad, and more rows than are worked on at a time.
fn blocks_of_many_blades(device: &Device) {
    let sizes = [
        (1, 1, 1),
        (3, 5, 2),
        (17, 13, 12),
        (500, 29, 16),
        (5003, 17, 12),
        (700, 20, 17),
        (2501, 37, 28),
        (140, 45, 32),
    ];
    for signature in [Signature::new(1, 3, 0), Signature::new(5, 0, 0)] {
        let algebra = Algebra::new(signature).unwrap();
        for (size, residual) in
            sizes.into_iter().filter(|size| is_taken(size.0)).flat_map(|size| [(size, false), (size, true)])
        {
            let (all, seed) = operands(&algebra, size);
            let mut all = scaled(all, size);
            all.extend(residual.then(|| random_like(&seed)));
            let on = |dtype, device: &Device| -> Vec<Array> {
                let all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
                let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
                let served = kernel::serves(&algebra, &kernel::Operands::from_all(&arrays).unwrap());
                assert!(served || matches!(device, Device::Cpu), "{signature} {size:?}");
                let wide = |array: &Array| array.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap();
                run(&algebra, &all, &to(&seed, dtype, device)).iter().map(wide).collect()
            };
            let (expected, single) = (on(DType::F64, &Device::Cpu), on(DType::F32, &Device::Cpu));
            let (found, again) = (on(DType::F32, device), on(DType::F32, device));
            for (position, expected) in expected.iter().enumerate() {
                let values = |from: &[Array]| from[position].to_f64_vec().unwrap();
                assert_eq!(values(&found), values(&again), "the same bits each time");
                let error = found[position].relative_error(expected).unwrap();
                let bound = (8.0 * single[position].relative_error(expected).unwrap()).max(5e-6);
                assert!(
                    error <= bound,
                    "{signature} {size:?}, residual: {residual}, result {position}: {error:e} > {bound:e}"
                );
            }
        }
    }
}

/// The steerable layer without the rest of a block, with and without its left map, and features of 1e10, whose forms have squares beyond f32.
fn steerable_layers_alone(device: &Device) {
    let sizes = [(1, 1), (3, 2), (17, 12), (500, 16), (5003, 12), (700, 17), (2501, 28), (140, 32)];
    let signatures = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (5, 0, 0)].map(|(p, q, r)| Signature::new(p, q, r));
    for signature in signatures {
        let algebra = Algebra::new(signature).unwrap();
        for ((batch, n), has_left) in
            sizes.into_iter().filter(|size| is_taken(size.0)).flat_map(|size| [(size, false), (size, true)])
        {
            let (all, seed) = operands(&algebra, (batch, n, n));
            let all = scaled(all, (batch, n, n));
            let on = |dtype, device: &Device, scale: f64| -> Vec<Array> {
                let array = |number: usize| to(&all[number], dtype, device).array().clone();
                let x = ops::mul_scalar(&array(0), scale).unwrap();
                let [right, a, w, left, bias] = [5, 6, 7, 8, 9].map(array);
                let left = has_left.then_some((&left, &bias));
                let operands = steerable_layer::Operands { x: &x, right: &right, a: &a, w: &w, left };
                let out = steerable_layer::forward(&algebra, &operands).unwrap();
                let grad = to(&seed, dtype, device).array().clone();
                let found = steerable_layer::backward(&algebra, &operands, &grad).unwrap();
                let mut results = vec![out, found.x, found.right, found.a, found.w];
                results.extend(found.left.into_iter().flat_map(|(left, bias)| [left, bias]));
                let wide = |array: &Array| array.to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap();
                results.iter().map(wide).collect()
            };
            for scale in [1.0, 1e10] {
                let (expected, single) =
                    (on(DType::F64, &Device::Cpu, scale), on(DType::F32, &Device::Cpu, scale));
                let (found, again) = (on(DType::F32, device, scale), on(DType::F32, device, scale));
                for (position, expected) in expected.iter().enumerate() {
                    let values = |from: &[Array]| from[position].to_f64_vec().unwrap();
                    assert_eq!(values(&found), values(&again), "the same bits each time");
                    assert!(
                        values(&found).iter().all(|value| value.is_finite()),
                        "{signature} {batch} × {n}"
                    );
                    // Gradients of normalised features of one or two numbers are differences of equal ones: in f32 they have no digit.
                    if scale > 1.0 && n < 8 {
                        continue;
                    }
                    let error = found[position].relative_error(expected).unwrap();
                    // Of forms that nearly vanish, rounding of the linear map decides: far out, digits differ by chance.
                    let (times, least) = if scale > 1.0 { (100.0, 1e-4) } else { (8.0, 5e-6) };
                    let bound = f64::max(times * single[position].relative_error(expected).unwrap(), least);
                    assert!(
                        error <= bound,
                        "{signature} {batch} × {n}, left: {has_left}, × {scale:e}, result {position}: {error:e} > {bound:e}"
                    );
                }
            }
        }
    }
}

/// Rows enough for the kernel of many rows, with tiles that they do not fill.
fn many_rows_are_computed_as_few_are(device: &Device) {
    const ROWS: usize = 43_001;
    for (signature, size) in [
        (Signature::CL3, (ROWS, 29, 28)),
        (Signature::CL3, (ROWS, 56, 28)),
        (Signature::new(2, 0, 0), (ROWS, 33, 32)),
        (Signature::new(2, 0, 0), (ROWS, 3, 7)),
        (Signature::CL3, (ROWS, 4, 31)),
        (Signature::CL3, (2_501, 64, 32)),
        (Signature::new(2, 0, 0), (2_501, 5, 31)),
    ] {
        let bound = if size.2 < 8 { 1e-4 } else { 5e-6 };
        agrees_with_the_cpu(device, signature, size, &[(Compute::Exact, bound)]);
    }
}

/// More than 32 features, which take kernels of their own: widths and numbers of inputs that fill no tile, rows that fill none, and more
/// tiles than blocks; exact and in TF32.
fn more_features_than_lanes(device: &Device) {
    let sizes = [
        (1, 1, 33),
        (5, 65, 64),
        (17, 33, 40),
        (500, 128, 64),
        (2111, 64, 64),
        (2500, 200, 37),
        (9001, 65, 50),
    ];
    for signature in [Signature::new(2, 0, 0), Signature::CL3] {
        for size in sizes {
            let ways = [(Compute::Exact, 5e-6), (Compute::Tf32, 5e-3)];
            agrees_with_the_cpu(device, signature, size, &ways);
        }
    }
}

/// Of more than 32 features: gradients in the compute mode of the backward pass, whose operands the forward pass of another mode has not
/// prepared; and those of the parameters alone.
fn a_backward_pass_may_compute_in_another_way_and_without_x(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let size = (203, 65, 40);
    let (all, seed) = operands(&algebra, size);
    let all = scaled(all, size);
    let on_device = |tensor: &Tensor| tensor.array().cast(DType::F32).unwrap().to_device(device).unwrap();
    let arrays: Vec<Array> = all.iter().map(on_device).collect();
    let block = kernel::Operands::from_all(&arrays).unwrap();
    let gradients = |kept: &kernel::Kept, need_x: bool| -> Vec<Option<Vec<f64>>> {
        let found = kernel::backward(&algebra, &block, kept, &on_device(&seed), need_x).unwrap();
        found.into_iter().map(|gradient| gradient.map(|array| array.to_f64_vec().unwrap())).collect()
    };
    let [exact, tf32] = [Compute::Exact, Compute::Tf32].map(|compute| {
        compute.scope(|| {
            let kept = kernel::forward(&algebra, &block).unwrap().kept;
            (kept.clone(), gradients(&kept, true), gradients(&kept, false))
        })
    });
    for (compute, other, own) in [(Compute::Exact, &tf32, &exact), (Compute::Tf32, &exact, &tf32)] {
        assert!(own.1[0].is_some() && own.2[0].is_none());
        assert_eq!(own.1[1..], own.2[1..], "{compute:?}: gradients of parameters do not depend on that of x");
        // The first map's result, which is another one, and prepared parameters of the other mode.
        let [y, _] = own.0.arrays() else { panic!("{:?}", own.0) };
        let [_, prepared] = other.0.arrays() else { panic!("{:?}", other.0) };
        let mixed = kernel::Kept::from_arrays(&[y.clone(), prepared.clone()]).unwrap();
        assert_eq!(compute.scope(|| gradients(&mixed, true)), own.1, "{compute:?}");
    }
}

/// Features in 16 bits, with parameters of their dtype and, in mixed precision, in `f32`.
fn sixteen_bits_and_mixed_precision(device: &Device) {
    // Few rows; then many: rows that fill no tile, or more tiles than blocks, and planes of a multiple of 16, 8, 4 and 2 bytes.
    let sizes = [
        (17, 29, 28),
        (33, 56, 28),
        (2000, 28, 32),
        (500, 4, 31),
        (140, 67, 32),
        (2201, 56, 28),
        (2203, 6, 30),
        (3001, 29, 31),
        (4002, 29, 28),
        (4008, 29, 28),
        (9000, 64, 28),
        (9001, 33, 31),
        // More than 32 features.
        (33, 33, 35),
        (2500, 64, 64),
        (5001, 65, 41),
    ];
    for (dtype, bound) in [(DType::BF16, 3e-2), (DType::F16, 4e-3)] {
        for (signature, mixed) in
            [Signature::new(2, 0, 0), Signature::CL3].into_iter().flat_map(|s| [(s, false), (s, true)])
        {
            let algebra = Algebra::new(signature).unwrap();
            for size in sizes {
                let (all, seed) = operands(&algebra, size);
                let mut all = scaled(all, size);
                all.push(random_like(&seed));
                let of = |index: usize| if mixed && (1..=10).contains(&index) { DType::F32 } else { dtype };
                let tested: Vec<Tensor> =
                    all.iter().enumerate().map(|(index, operand)| to(operand, of(index), device)).collect();
                let arrays: Vec<Array> = tested.iter().map(|tensor| tensor.array().clone()).collect();
                let operands = kernel::Operands::from_all(&arrays).unwrap();
                assert!(kernel::serves(&algebra, &operands), "{signature} {size:?} {dtype}");
                let reference: Vec<Tensor> = tested
                    .iter()
                    .map(|operand| {
                        Tensor::new(
                            operand.array().to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap(),
                        )
                        .requires_grad()
                    })
                    .collect();
                let seed = to(&seed, dtype, device);
                let found = run(&algebra, &tested, &seed);
                let seed = seed.array().to_device(&Device::Cpu).unwrap().cast(DType::F64).unwrap();
                let exact = run(&algebra, &reference, &Tensor::new(seed));
                for (position, (found, exact)) in found.iter().zip(&exact).enumerate() {
                    if position > 0 {
                        assert_eq!(
                            found.dtype(),
                            of(position - 1),
                            "the gradient of an operand has its dtype"
                        );
                    }
                    let found = found.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
                    let error = found.relative_error(exact).unwrap();
                    assert!(
                        error <= bound,
                        "{signature} {size:?} {dtype}, mixed: {mixed}, result {position}: {error:e} > {bound:e}"
                    );
                }
            }
        }
    }
}

/// Rows that begin at any element of an array.
fn views_give_the_bits_of_their_copies(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    // Few and many rows, with planes of an odd number of elements, and features in pairs that are not aligned.
    for (size, dtype) in [(301, 29, 31), (3001, 29, 31), (2203, 5, 27), (2203, 33, 41), (2203, 28, 28)]
        .into_iter()
        .flat_map(|size| [DType::F32, DType::BF16, DType::F16].map(|dtype| (size, dtype)))
    {
        let (mut all, seed) = operands(&algebra, size);
        all.push(random_like(&seed));
        let all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
        let seed = to(&seed, dtype, device);
        // An array behind a single element.
        let shifted = |tensor: &Tensor| {
            let array = tensor.array().reshape([tensor.array().elements()]).unwrap();
            let joined = ops::concat(&[&array.slice(0, 0..1).unwrap(), &array], 0).unwrap();
            let view = joined.slice(0, 1..array.elements() + 1).unwrap();
            let view = view.reshape(tensor.array().shape().clone()).unwrap();
            assert!(view.is_contiguous());
            Tensor::new(view).requires_grad()
        };
        let expected = run(&algebra, &all, &seed);
        let mut views = all;
        views[0] = shifted(&views[0]);
        views[kernel::OPERANDS] = shifted(&views[kernel::OPERANDS]);
        let found = run(&algebra, &views, &shifted(&seed));
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let bits = |array: &Array| array.cast(DType::F64).unwrap().to_f64_vec().unwrap();
            assert_eq!(bits(found), bits(expected), "{size:?} {dtype}, result {position}");
        }
    }
}

/// x as columns of wider rows, which the first map of a block of more than 32 features reads without a copy: the copy engine where rows
/// begin at multiples of 16 bytes, other kernels elsewhere.
fn columns_of_wider_rows_give_what_their_copies_give(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for (dtype, bound) in [(DType::F32, 5e-6), (DType::BF16, 2e-2), (DType::F16, 3e-3)] {
        for (size, padding) in
            [((33, 65, 41), 3), ((33, 65, 41), 7), ((2203, 65, 64), 7), ((2203, 33, 40), 2)]
        {
            let (all, seed) = operands(&algebra, size);
            let all = scaled(all, size);
            let mut all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
            let seed = to(&seed, dtype, device);
            let expected = run(&algebra, &all, &seed);
            let x = all[0].array();
            // A product with what is beside the columns would show.
            let beside = ops::mul_scalar(&x.slice(2, 0..padding).unwrap(), 1e4).unwrap();
            let columns = ops::concat(&[x, &beside], 2).unwrap().slice(2, 0..size.1).unwrap();
            assert!(!columns.is_contiguous());
            all[0] = Tensor::new(columns).requires_grad();
            let found = run(&algebra, &all, &seed);
            for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let on_host =
                    |array: &Array| array.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
                let error = on_host(found).relative_error(&on_host(expected)).unwrap();
                assert!(
                    error <= bound,
                    "{size:?} {dtype} {padding}, result {position}: {error:e} > {bound:e}"
                );
            }
        }
    }
}

/// In mixed precision, a block whose features are in f32 gives what its parts give, in 16 bits.
fn autocast_takes_the_kernel(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (all, _) = operands(&algebra, (100, 29, 28));
    let all: Vec<Tensor> = all.iter().map(|operand| to(operand, DType::F32, device)).collect();
    let operands = MvBlock::from_all(&all).unwrap();
    let exact = clifford::mv_block(&algebra, &operands).unwrap();
    let short = autocast(DType::BF16, || clifford::mv_block(&algebra, &operands)).unwrap();
    assert_eq!(short.dtype(), DType::BF16);
    let short = short.array().cast(DType::F32).unwrap();
    let error = short.relative_error(exact.array()).unwrap();
    assert!(error <= 1e-2, "{error:e}");
}

fn what_the_kernel_does_not_serve_goes_by_its_parts() {
    let devices = [Some(Device::Cpu), gpu()];
    for device in devices.iter().flatten() {
        // No rows, more features than lanes, another algebra, another dtype.
        for (signature, size, dtype) in [
            (Signature::CL3, (0, 3, 4), DType::F32),
            (Signature::CL3, (5, 3, 65), DType::F32),
            (Signature::new(1, 1, 0), (5, 3, 4), DType::F32),
            (Signature::CL3, (5, 3, 4), DType::F64),
        ] {
            let algebra = Algebra::new(signature).unwrap();
            let (mut all, seed) = operands(&algebra, size);
            all.push(random_like(&seed));
            let all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
            let arrays: Vec<Array> = all.iter().map(|tensor| tensor.array().clone()).collect();
            let operands = kernel::Operands::from_all(&arrays).unwrap();
            assert!(!kernel::serves(&algebra, &operands));
            // On the CPU the block serves all of these, but does not pay.
            assert!(matches!(device, Device::Cpu) || kernel::forward(&algebra, &operands).is_err());
            let found = run(&algebra, &all, &to(&seed, dtype, device));
            assert_eq!(found[0].dims(), [algebra.blade_count(), size.0, size.2]);
            assert_eq!(found.len(), 1 + kernel::OPERANDS + 1);
            // The sum is that of the residual and the block without it, and the residual's gradient that of the sum.
            let without = run(&algebra, &all[..kernel::OPERANDS], &to(&seed, dtype, device));
            let sum = ops::add(all[kernel::OPERANDS].array(), &without[0]).unwrap();
            assert_eq!(found[0].to_f64_vec().unwrap(), sum.to_f64_vec().unwrap());
            let seed = seed.array().cast(dtype).unwrap().to_f64_vec().unwrap();
            assert_eq!(found[1 + kernel::OPERANDS].to_f64_vec().unwrap(), seed);
        }
    }
}

fn a_residual_has_the_shape_of_the_output() {
    let devices = [Some(Device::Cpu), gpu()];
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for device in devices.iter().flatten() {
        // The second could be broadcast.
        for shape in [[8, 5, 3], [8, 1, 4], [4, 5, 4]] {
            let (mut all, _) = operands(&algebra, (5, 3, 4));
            all.push(Tensor::zeros(shape, DType::F64, &Device::Cpu).unwrap());
            let all: Vec<Tensor> = all.iter().map(|operand| to(operand, DType::F32, device)).collect();
            let message =
                clifford::mv_block(&algebra, &MvBlock::from_all(&all).unwrap()).unwrap_err().to_string();
            assert!(message.contains("mv_block") && message.contains("`residual`"), "{message}");
            assert!(message.contains("[8, 5, 4]"), "{message}");
        }
    }
}

fn gradients_of_gradients_go_by_the_parts(device: &Device) {
    for features in [12, 40] {
        slopes_have_gradients(features, device);
    }
}

fn slopes_have_gradients(features: usize, device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (mut all, seed) = operands(&algebra, (17, 5, features));
    all.push(random_like(&seed));
    // The gradient of a function of the block's slope, for every operand.
    let second = |dtype: DType, device: &Device| -> Vec<Option<Array>> {
        let all: Vec<Tensor> = all.iter().map(|operand| to(operand, dtype, device)).collect();
        let inputs: Vec<&Tensor> = all.iter().collect();
        let output = clifford::mv_block(&algebra, &MvBlock::from_all(&all).unwrap()).unwrap();
        let energy = output.square().unwrap().sum_all().unwrap();
        let slope = grad(&energy, &[&all[0]], &BackwardOptions::create_graph()).unwrap().remove(0).unwrap();
        let loss = slope.square().unwrap().mean_all().unwrap();
        let found = grad(&loss, &inputs, &BackwardOptions::default()).unwrap();
        found.into_iter().map(|gradient| gradient.map(|gradient| gradient.array().clone())).collect()
    };
    let (found, expected) = (second(DType::F32, device), second(DType::F64, &Device::Cpu));
    assert!(expected[kernel::OPERANDS].is_some(), "the residual is in the slope of the square");
    for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (Some(found), Some(expected)) = (found, expected) else {
            panic!("operand {position}: {} and {}", found.is_some(), expected.is_some());
        };
        let found = found.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
        let error = found.relative_error(expected).unwrap();
        assert!(error <= 5e-4, "operand {position}: {error:e}");
    }
}

gradewise_testing::main!(
    one_operator_computes_what_its_parts_compute,
    blocks_of_many_blades,
    steerable_layers_alone,
    many_rows_are_computed_as_few_are,
    more_features_than_lanes,
    a_backward_pass_may_compute_in_another_way_and_without_x,
    sixteen_bits_and_mixed_precision,
    views_give_the_bits_of_their_copies,
    columns_of_wider_rows_give_what_their_copies_give,
    autocast_takes_the_kernel,
    what_the_kernel_does_not_serve_goes_by_its_parts,
    a_residual_has_the_shape_of_the_output,
    gradients_of_gradients_go_by_the_parts,
);
