//! Every operation of the registry on a GPU: both passes in every dtype against the CPU in double precision, at edge sizes, of copies
//! and of views.

use gradewise_autograd::{AnySample, BackwardOptions, Result, Sizes, Tensor, grad, registry::entries};
use gradewise_core::Signature;
use gradewise_kernels::{Array, CudaDevice, DType, Device};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SIGNATURES: [(u8, u8, u8); 5] = [(2, 0, 0), (3, 0, 0), (1, 3, 0), (3, 0, 1), (1, 1, 0)];
/// Rows and features: single ones, none, tails of vectors and of warps.
const SIZES: [(usize, usize); 6] = [(1, 1), (0, 3), (3, 5), (33, 17), (2, 64), (130, 28)];

/// The largest relative error of the contract (docs/numerics.md) for a well-conditioned result.
fn contract(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-6,
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
    }
}

/// Half of the distance between 1 and the next number.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
    }
}

/// The error that any implementation can be expected to have at these inputs, for each result, in roundings of `dtype`. It is the larger
/// of two measurements: the error of the CPU in `f32` over several draws, and four times how far results in `f64` move when every input
/// moves by one rounding of `f32` (the conditioning of the problem; an operator rounds more often than its inputs are rounded). The second
/// matters at single rows and features, where a result is one number whose error in `f32` may be small by chance.
fn expected_error(sample: &AnySample, drawn: &[Array], exact: &[Array], dtype: DType) -> Vec<f64> {
    let mut worst = vec![0.0f64; exact.len()];
    let mut record = |results: &[Array], exact: &[Array], roundings: f64| {
        for ((worst, result), exact) in worst.iter_mut().zip(results).zip(exact) {
            *worst = worst.max(roundings * result.relative_error(exact).unwrap());
        }
    };
    let on =
        |drawn: &[Array], dtype| run(sample, &sample.place(drawn, dtype, &Device::Cpu).unwrap()).unwrap();
    for seed in 5..9 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let others = sample.draw(DType::F32, &mut rng).unwrap();
        record(&on(&others, DType::F32), &on(&others, DType::F64), 1.0);
        let moved: Vec<Array> = drawn.iter().map(|input| moved(input, &mut rng)).collect();
        record(&on(&moved, DType::F64), exact, 4.0);
    }
    worst.iter().map(|error| error * rounding(dtype) / rounding(DType::F32)).collect()
}

/// The input with every element a rounding of `f32` larger or smaller, at random.
fn moved(input: &Array, rng: &mut ChaCha8Rng) -> Array {
    let mut values = input.to_f64_vec().unwrap();
    for value in &mut values {
        *value *= if rng.random_bool(0.5) { 1.0 + rounding(DType::F32) } else { 1.0 - rounding(DType::F32) };
    }
    Array::from_slice(&values, input.shape(), &Device::Cpu).unwrap()
}

/// The output and the gradients of the inputs, in a direction that 16-bit numbers hold exactly.
fn run(sample: &AnySample, inputs: &[Tensor]) -> Result<Vec<Array>> {
    let leaves: Vec<Tensor> = inputs.iter().map(Tensor::requires_grad).collect();
    let output = sample.run(&leaves)?;
    let direction =
        Array::randn(output.shape(), DType::F64, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(3))?;
    let short = direction.cast(DType::BF16)?.cast(DType::F16)?.cast(DType::BF16)?;
    let direction = Tensor::new(short.cast(output.dtype())?.to_device(&output.device())?);
    let gradients = grad(&output, &leaves.iter().collect::<Vec<_>>(), &BackwardOptions::seed(direction))?;
    let gradients = gradients.into_iter().flatten().map(|gradient| gradient.array().clone());
    Ok(std::iter::once(output.array().clone()).chain(gradients).collect())
}

/// The same elements with the axes in another order in memory.
fn turned(tensor: &Tensor) -> Tensor {
    let order: Vec<usize> = (0..tensor.shape().rank()).rev().collect();
    let array = tensor.array().permute(&order).unwrap().contiguous().unwrap();
    Tensor::new(array.permute(&order).unwrap())
}

/// Whether a tool slows every launch down, which sets this as in tests with seeds: a few sizes then, for all had not ended in 400 s.
fn is_slow() -> bool {
    std::env::var_os("GRADEWISE_TEST_SEEDS").is_some()
}

fn check(device: &Device, dtype: DType, is_view: bool) {
    let mut compared = 0;
    let (signatures, sizes, least) =
        if is_slow() { (&SIGNATURES[1..2], &SIZES[3..4], 50) } else { (&SIGNATURES[..], &SIZES[..], 1000) };
    for &signature in signatures {
        for &(batch, features) in sizes {
            let (p, q, r) = signature;
            let sizes = Sizes::new(Signature::new(p, q, r), batch, features).unwrap();
            for sample in entries().iter().flat_map(|entry| entry.samples(&sizes).unwrap()) {
                let drawn = sample.draw(dtype, &mut ChaCha8Rng::seed_from_u64(5)).unwrap();
                let on = |dtype, device: &Device| sample.place(&drawn, dtype, device).unwrap();
                let mut inputs = on(dtype, device);
                if is_view {
                    inputs = inputs.iter().map(turned).collect();
                }
                let context = || format!("{sample} in Cl{signature:?}, {dtype}, views: {is_view}");
                let actual = run(&sample, &inputs).unwrap_or_else(|error| panic!("{}: {error}", context()));
                let exact = run(&sample, &on(DType::F64, &Device::Cpu)).unwrap();
                let own = run(&sample, &on(dtype, &Device::Cpu)).unwrap();
                let expected = expected_error(&sample, &drawn, &exact, dtype);
                assert_eq!(actual.len(), exact.len(), "{}", context());
                for (index, ((actual, exact), own)) in actual.iter().zip(&exact).zip(&own).enumerate() {
                    let error = actual.relative_error(exact).unwrap();
                    let own = own.relative_error(exact).unwrap();
                    let bound = contract(dtype) + 8.0 * own.max(expected[index]);
                    assert!(
                        error <= bound,
                        "{}: result {index} is {error:.1e} off, past {bound:.1e}",
                        context()
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > least, "{compared} results were compared");
}

fn operations_agree_with_the_cpu_in_f64(device: &CudaDevice) {
    check(&Device::Cuda(device.clone()), DType::F64, false);
}

fn operations_agree_with_the_cpu_in_f32(device: &CudaDevice) {
    check(&Device::Cuda(device.clone()), DType::F32, false);
}

fn operations_agree_with_the_cpu_in_bf16(device: &CudaDevice) {
    check(&Device::Cuda(device.clone()), DType::BF16, false);
}

fn operations_agree_with_the_cpu_in_f16(device: &CudaDevice) {
    check(&Device::Cuda(device.clone()), DType::F16, false);
}

fn views_agree_with_the_cpu(device: &CudaDevice) {
    check(&Device::Cuda(device.clone()), DType::F32, true);
}

/// The same bits from the same inputs, in both passes: no sum is added up in an order left to chance.
fn results_have_the_same_bits_every_time(device: &CudaDevice) {
    let (rows, repetitions) = if is_slow() { (33, 1) } else { (257, 3) };
    let (device, sizes) = (Device::Cuda(device.clone()), Sizes::new(Signature::CL3, rows, 33).unwrap());
    for sample in entries().iter().flat_map(|entry| entry.samples(&sizes).unwrap()) {
        let drawn = sample.draw(DType::F32, &mut ChaCha8Rng::seed_from_u64(5)).unwrap();
        let inputs = sample.place(&drawn, DType::F32, &device).unwrap();
        let bits = || -> Vec<Vec<u64>> {
            let results = run(&sample, &inputs).unwrap();
            results
                .iter()
                .map(|array| array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect())
                .collect()
        };
        let first = bits();
        assert!((0..repetitions).all(|_| bits() == first), "{sample}");
    }
}

gradewise_testing::main!(
    operations_agree_with_the_cpu_in_f64,
    operations_agree_with_the_cpu_in_f32,
    operations_agree_with_the_cpu_in_bf16,
    operations_agree_with_the_cpu_in_f16,
    views_agree_with_the_cpu,
    results_have_the_same_bits_every_time,
);
