//! Measures the peak rates of the device.

use super::{Timer, Vendor, operators::random, vendor};
use crate::{Ceilings, Op, Pass, ProductRate, Result, Work};
use gradewise_core::{DType, Signature};
use gradewise_ffi::DeviceMemory;
use gradewise_kernels::{Compute, Device, ops};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Sizes of the square products that measure the ceilings: for tensor-core arithmetic, and for `f32` and `f64`, which
/// have a tenth of the rate.
pub const PRODUCT_SIZES: [usize; 2] = [8192, 4096];

const RUNS: (usize, usize) = (2, 8);

/// Measures the copy rate and the rate of large square products in each of the given arithmetics, by our kernels and, if it is found, by
/// cuBLASLt.
///
/// # Errors
/// From the device.
pub fn ceilings(
    timer: &Timer,
    vendor: Option<&Vendor>,
    arithmetics: &[(DType, Compute)],
) -> Result<Ceilings> {
    // Without NVTX ranges, because ceilings are not part of a profile.
    let timer = Timer::new(timer.device(), RUNS.0, RUNS.1);
    let mut ceilings = Ceilings {
        copy_bytes_per_s: Some(copy(&timer)?),
        vendor: vendor.map(Vendor::name),
        ..Ceilings::default()
    };
    for &(dtype, compute) in arithmetics {
        let [large, small] = PRODUCT_SIZES;
        let fast = matches!((dtype, compute), (DType::BF16 | DType::F16, _) | (DType::F32, Compute::Tf32));
        let size = if fast { large } else { small };
        let case = crate::Case::new(Op::Matmul, Signature::CL3, (size, size), dtype, compute);
        let flops = Work::of(&case, Pass::Forward)?.matrix_flops as f64;
        let rate = |ms: f64| flops / ms * 1e3;
        let ours = product(&timer, &case)?;
        let theirs = vendor.map(|vendor| vendor.product(&timer, (size, size, size), vendor::element(&case)));
        let vendor = theirs.transpose()?.map(rate);
        let name = crate::work::arithmetic(&case).to_owned();
        ceilings.products.insert(name, ProductRate { ours: Some(rate(ours)), vendor });
    }
    Ok(ceilings)
}

/// Bytes per second of a copy of a gibibyte, read and written.
fn copy(timer: &Timer) -> Result<f64> {
    let bytes = 1usize << 30;
    let stream = timer.device().stream();
    let [a, b] = [DeviceMemory::new(stream, bytes)?, DeviceMemory::new(stream, bytes)?];
    a.fill(1)?;
    let times = timer.times(|| Ok(b.copy_from(0, &a, 0, bytes)?))?;
    Ok(2.0 * bytes as f64 / times.median() * 1e3)
}

fn product(timer: &Timer, case: &crate::Case) -> Result<f64> {
    let place = (case.dtype, &Device::Cuda(timer.device().clone()));
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let a = random(&[case.batch, case.features], 1.0, place, &mut rng)?;
    let b = random(&[case.features, case.features], 1.0, place, &mut rng)?;
    case.compute.scope(|| {
        let times = timer.times(|| Ok(ops::matmul(&a, &b, false, false).map(drop)?))?;
        Ok(times.median())
    })
}
