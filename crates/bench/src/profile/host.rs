//! Measures the peak rates of the host.

use crate::{Ceilings, ProductRate, Result};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device, ops};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Bytes that are copied, larger than caches.
const BYTES: usize = 128 << 20;
/// Size of the square products.
const SIZE: usize = 768;
/// The most runs, of which the fastest counts, and the time limit for all of them.
const RUNS: usize = 8;
const LIMIT: Duration = Duration::from_millis(800);

/// Measures the rate at which all cores copy memory, counting bytes read and bytes written, and the rate of our matrix products in these
/// dtypes.
///
/// # Errors
/// A dtype that the CPU does not support.
pub fn ceilings(dtypes: &[DType]) -> Result<Ceilings> {
    let mut ceilings = Ceilings { copy_bytes_per_s: Some(copy()), ..Ceilings::default() };
    for &dtype in dtypes {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let [a, b] = [(), ()].map(|()| Array::randn([SIZE, SIZE], dtype, &Device::Cpu, &mut rng));
        let (a, b) = (a?, b?);
        let product = || ops::matmul(&a, &b, false, false).map(drop);
        product()?;
        let seconds = fastest(|| product().is_ok());
        let rate = ProductRate { ours: Some(2.0 * (SIZE as f64).powi(3) / seconds), vendor: None };
        ceilings.products.insert(dtype.name().to_owned(), rate);
    }
    Ok(ceilings)
}

fn copy() -> f64 {
    let (source, mut target) = (vec![1u8; BYTES], vec![0u8; BYTES]);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let part = BYTES.div_ceil(cores);
    let mut run = || {
        thread::scope(|scope| {
            for (to, from) in target.chunks_mut(part).zip(source.chunks(part)) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
        true
    };
    run();
    2.0 * BYTES as f64 / fastest(run)
}

fn fastest(mut run: impl FnMut() -> bool) -> f64 {
    let begun = Instant::now();
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        if run() {
            best = best.min(start.elapsed().as_secs_f64());
        }
        if begun.elapsed() > LIMIT {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_copies_and_multiplies_at_rates_that_hosts_have() {
        let found = ceilings(&[DType::F32, DType::F64]).unwrap();
        let copy = found.copy_bytes_per_s.unwrap();
        assert!((1e7..1e13).contains(&copy), "{copy}");
        for name in ["f32", "f64"] {
            let rate = found.products[name].best();
            assert!((1e6..1e14).contains(&rate), "{name}: {rate}");
        }
        assert!(ceilings(&[DType::BF16]).is_err(), "the CPU refuses to compute in it");
    }
}
