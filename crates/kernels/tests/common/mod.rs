//! The same tests on every device: operators in each dtype against the CPU in double precision, from the same rounded
//! inputs.

#![allow(dead_code, reason = "each test file uses a part")]

pub use gradewise_testing::gpu;

use gradewise_kernels::{Array, DType, Device, Result, Shape, debug};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A device and the dtypes that it computes in.
pub struct Target {
    pub device: Device,
    pub dtypes: Vec<DType>,
}

/// The CPU, and the GPU if there is one. The reference is the CPU in double precision, so the CPU is tested in single precision alone:
/// what is compared with itself is always the same.
pub fn targets() -> Vec<Target> {
    let mut targets = vec![Target { device: Device::Cpu, dtypes: vec![DType::F32] }];
    targets.extend(gpu().map(|device| Target { device, dtypes: DType::ALL.to_vec() }));
    targets
}

/// What `work` gives, and what this thread launched meanwhile, as debug mode calls it: the kernel first, then a space.
pub fn launched<R>(work: impl FnOnce() -> R) -> (R, Vec<String>) {
    let mine = || {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("main").to_owned();
        debug::launches().into_iter().filter(move |launch| *launch.thread == *name)
    };
    let last = mine().last().map_or(0, |launch| launch.number);
    let result = work();
    (result, mine().filter(|launch| launch.number > last).map(|launch| launch.work.to_string()).collect())
}

/// The name of a kernel that [`launched`] gives, without widths and dtype, which end in the first word with a digit.
pub fn function(work: &str) -> String {
    let kernel = work.split(' ').next().unwrap_or_default();
    let words = kernel.strip_prefix("gw_").unwrap_or(kernel).split('_');
    let words: Vec<&str> = words.take_while(|word| !word.contains(|c: char| c.is_ascii_digit())).collect();
    words.join("_")
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Calls `test` for each target, dtype and seed; for fewer seeds if `GRADEWISE_TEST_SEEDS` says so, as under a tool that
/// slows every instruction down.
pub fn for_all(seeds: u64, test: impl Fn(&Device, DType, &mut ChaCha8Rng, &str)) {
    let most = std::env::var("GRADEWISE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.min(most.unwrap_or(u64::MAX));
    for Target { device, dtypes } in targets() {
        for &dtype in &dtypes {
            for seed in 0..seeds {
                test(&device, dtype, &mut rng(seed), &format!("{dtype} on {device}, seed {seed}"));
            }
        }
    }
}

/// An array of the dtype and on the device to be tested, and the same values in double precision on the CPU.
#[derive(Clone, Debug)]
pub struct Pair {
    pub tested: Array,
    pub reference: Array,
}

impl Pair {
    /// The values of an array in double precision, rounded to `dtype`.
    pub fn of(values: &Array, dtype: DType, device: &Device) -> Self {
        let rounded = values.cast(dtype).unwrap();
        Self { tested: rounded.to_device(device).unwrap(), reference: rounded.cast(DType::F64).unwrap() }
    }

    /// Samples of the standard normal distribution.
    pub fn randn(shape: impl Into<Shape>, dtype: DType, device: &Device, rng: &mut impl Rng) -> Self {
        Self::of(&Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap(), dtype, device)
    }

    /// The same function of both.
    pub fn map(&self, f: impl Fn(&Array) -> Result<Array>) -> Self {
        Self { tested: f(&self.tested).unwrap(), reference: f(&self.reference).unwrap() }
    }

    /// Asserts that both show the same values, to what the dtype holds: what it has no numbers for is infinite.
    pub fn check(&self, context: &str) {
        let (tested, expected) = self.values(context);
        let rounded = self.reference.cast(self.tested.dtype()).unwrap().to_f64_vec().unwrap();
        let tolerance = tolerance(self.tested.dtype());
        let (mut error, mut norm) = (0.0, 0.0);
        for (at, (&a, (&b, &rounded))) in tested.iter().zip(expected.iter().zip(&rounded)).enumerate() {
            if rounded.is_finite() && a.is_finite() {
                error += (a - b) * (a - b);
                norm += b * b;
            } else {
                // At the very end of the range, one of them may have been rounded to infinity.
                let at_end = b.abs() > 65_000.0 && self.tested.dtype() == DType::F16 && a * b > 0.0;
                let shape = self.tested.shape();
                assert!(same(a, rounded) || at_end, "{context}: {a} instead of {b} at {at} of {shape}");
            }
        }
        let (error, norm): (f64, f64) = (f64::sqrt(error), f64::sqrt(norm));
        assert!(
            error <= tolerance * norm,
            "{context}: relative error {:e} of {}",
            error / norm,
            self.tested.shape()
        );
    }

    /// Asserts that both show exactly the same values, once those of the reference are rounded to the dtype.
    pub fn check_exact(&self, context: &str) {
        let rounded = self.reference.cast(self.tested.dtype()).unwrap();
        let (tested, _) = self.values(context);
        for (at, (a, b)) in tested.into_iter().zip(rounded.to_f64_vec().unwrap()).enumerate() {
            assert!(same(a, b), "{context}: {a} instead of {b} at {at} of {}", self.tested.shape());
        }
    }

    fn values(&self, context: &str) -> (Vec<f64>, Vec<f64>) {
        assert_eq!(self.tested.shape(), self.reference.shape(), "{context}");
        (self.tested.to_f64_vec().unwrap(), self.reference.to_f64_vec().unwrap())
    }
}

fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// The accuracy of elementwise functions, products and norms.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-6,
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
    }
}

/// A size: often 1 or a power of two, often next to one, sometimes 0.
pub fn size(rng: &mut impl Rng) -> usize {
    const SIZES: [usize; 16] = [0, 1, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 33, 64, 100];
    SIZES[rng.random_range(0..SIZES.len())]
}

/// A shape of at most four axes and some ten thousand elements.
pub fn shape(rng: &mut impl Rng) -> Vec<usize> {
    let mut shape: Vec<usize> = (0..rng.random_range(0..=4)).map(|_| size(rng)).collect();
    while shape.iter().product::<usize>() > 20_000 {
        shape.pop();
    }
    shape
}

/// Normal samples in a view that may be transposed, a part of something larger, or repeated, of the given shape.
pub fn view(shape: &[usize], dtype: DType, device: &Device, rng: &mut impl Rng) -> Pair {
    view_of(|x| Ok(x.clone()), shape, dtype, device, rng)
}

/// [`view`] of a function of normal samples.
pub fn view_of(
    f: impl Fn(&Array) -> Result<Array>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
    rng: &mut impl Rng,
) -> Pair {
    let rank = shape.len();
    let kinds: Vec<u8> = (0..rank).map(|_| rng.random_range(0..6)).collect();
    // How the storage differs from what is seen: a margin at either side, or one entry that is repeated.
    let margin = |axis: usize| if kinds[axis] == 0 { 3 } else { 0 };
    let stored: Vec<usize> =
        (0..rank).map(|axis| if kinds[axis] == 1 { 1 } else { shape[axis] + margin(axis) }).collect();
    let mut order: Vec<usize> = (0..rank).collect();
    if rng.random_bool(0.5) {
        for axis in (1..rank).rev() {
            order.swap(axis, rng.random_range(0..=axis));
        }
    }
    let storage: Vec<usize> = order.iter().map(|&axis| stored[axis]).collect();
    let back: Vec<usize> =
        (0..rank).map(|axis| order.iter().position(|&stored| stored == axis).unwrap()).collect();
    let values = f(&Array::randn(storage, DType::F64, &Device::Cpu, rng).unwrap()).unwrap();
    Pair::of(&values, dtype, device).map(|array| {
        let mut array = array.permute(&back)?;
        for axis in 0..rank {
            let start = margin(axis) / 3 * 2;
            array = array.slice(axis, start..start + if kinds[axis] == 1 { 1 } else { shape[axis] })?;
        }
        array.broadcast_to(shape)
    })
}
