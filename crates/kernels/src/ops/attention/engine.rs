//! The kernels of attention on CUDA: which one serves a problem, and its sizes.

use super::Problem;
use crate::{
    Array, Compute, CudaDevice, DType,
    csrc::{attention_hopper, attention_simt, attention_warp},
    runtime::cuda::Kernel,
};

/// The instructions that compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Ordinary multiply-adds.
    Simt,
    /// Warp-wide matrix instructions: of 16 bits, or of f32 in TF32.
    Warp,
    /// The same instructions, three for each product of f32, with the accuracy of f32.
    WarpExact,
    /// The matrix instructions of warpgroups.
    Hopper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    BackwardQ,
    BackwardKv,
}

/// Features for which there are kernels.
const SIZES: [usize; 5] = [32, 48, 64, 96, 128];
/// The most features of exact products by matrix instructions.
const MOST_EXACT: usize = 96;

impl Engine {
    /// `general`: with dropout or packed sequences.
    pub fn choose(device: &CudaDevice, problem: &Problem, operands: &[&Array], general: bool) -> Self {
        // The kernels copy 16 bytes at a time.
        let aligned = |array: &&Array| {
            let mut axes = array.dims().iter().zip(array.strides()).take(3);
            array.cuda_address().is_multiple_of(16)
                && axes.all(|(&count, &step)| count == 1 || (step * array.dtype().size()).is_multiple_of(16))
        };
        if device.info().compute_capability.0 < 8 || !operands.iter().all(aligned) {
            return Self::Simt;
        }
        let features = [problem.features, problem.values];
        Self::of_aligned(problem.q.dtype(), features, general, Compute::current())
    }

    /// The engine of warp-wide instructions for operands aligned to 16 bytes, if there is one.
    fn of_aligned(dtype: DType, features: [usize; 2], general: bool, compute: Compute) -> Self {
        let are_multiples_of = |count| features.iter().all(|each| each.is_multiple_of(count));
        match (dtype, compute) {
            (DType::BF16 | DType::F16, _) if are_multiples_of(8) => Self::Warp,
            (DType::F32, Compute::Tf32) if !general && are_multiples_of(4) => Self::Warp,
            (DType::F32, Compute::Exact)
                if !general && are_multiples_of(4) && features[0].max(features[1]) <= MOST_EXACT =>
            {
                Self::WarpExact
            }
            _ => Self::Simt,
        }
    }

    /// Features that the kernel for a problem is compiled for; `None` if there are too many. Those for f32 by warp-wide instructions have
    /// sizes of their own.
    pub fn size(self, features: usize, dtype: DType) -> Option<usize> {
        let has_more = matches!(self, Self::Warp | Self::WarpExact) && dtype == DType::F32;
        SIZES.into_iter().find(|&size| size >= features && (has_more || ![48, 96].contains(&size)))
    }

    /// The faster engine for what this one can compute: Hopper where the device and the problem allow it, else this one.
    pub fn best(self, device: &CudaDevice, problem: &Problem, operands: &[&Array]) -> Self {
        // Shorter sequences leave most of a tile empty.
        const ENOUGH: usize = 128;
        // The copy engine takes no strides of 0.
        let steps = operands.iter().all(|array| array.strides().iter().all(|&step| step > 0));
        // Kernels count tiles, of 64 tokens or more, in 32 bits.
        let tiles = problem.batch * problem.heads * problem.queries.max(problem.keys).div_ceil(64);
        let served = self == Self::Warp
            && problem.q.dtype().size() == 2
            && i32::try_from(2 * tiles).is_ok()
            && device.options().attention_warpgroups
            && steps
            && problem.features > 32
            && problem.features == problem.values
            && problem.queries.min(problem.keys) >= ENOUGH
            && device.has_warpgroups();
        if served { Self::Hopper } else { self }
    }

    pub const fn threads(self, pass: Pass, size: usize) -> u32 {
        match self {
            Self::Simt => attention_simt::THREADS as u32,
            Self::Warp | Self::WarpExact => attention_warp::THREADS as u32,
            Self::Hopper => Hopper::of(pass, size).threads(),
        }
    }

    /// `general`: with dropout or packed sequences.
    pub fn kernel(self, pass: Pass, general: bool, size: usize, dtype: DType) -> Kernel {
        macro_rules! names {
            ($($engine:ident $general:pat => $name:literal,)*) => {
                match (self, general, pass) {
                    $(
                        (Self::$engine, $general, Pass::Forward) => names!($name, "fwd"),
                        (Self::$engine, $general, Pass::BackwardQ) => names!($name, "bwd_q"),
                        (Self::$engine, $general, Pass::BackwardKv) => names!($name, "bwd_kv"),
                    )*
                }
            };
            ($engine:literal, $pass:literal) => {
                [
                    concat!("attention_", $engine, "_", $pass, "_32"),
                    concat!("attention_", $engine, "_", $pass, "_48"),
                    concat!("attention_", $engine, "_", $pass, "_64"),
                    concat!("attention_", $engine, "_", $pass, "_96"),
                    concat!("attention_", $engine, "_", $pass, "_128"),
                ]
            };
        }
        let names = names! {
            Simt false => "simt",
            Simt true => "simt_general",
            Warp false => "warp",
            Warp true => "warp_general",
            WarpExact _ => "warp_exact",
            Hopper false => "hopper",
            Hopper true => "hopper_general",
        };
        Kernel::new(names[SIZES.iter().position(|&each| each == size).unwrap_or(0)], dtype)
    }

    /// Rows of a tile, and bytes of shared memory.
    pub fn tile(self, pass: Pass, size: usize, dtype: DType) -> (usize, usize) {
        match self {
            Self::Simt => {
                let (backward, element) = ((pass != Pass::Forward).into(), dtype.accumulator().size());
                (attention_simt::rows(backward, element), attention_simt::shared(backward, size, element))
            }
            Self::Warp | Self::WarpExact => {
                let bytes =
                    if pass == Pass::Forward { attention_warp::forward } else { attention_warp::backward };
                (attention_warp::ROWS, bytes(size, dtype.size()))
            }
            Self::Hopper => {
                let hopper = Hopper::of(pass, size);
                (hopper.rows, hopper.bytes(size))
            }
        }
    }
}

/// What a kernel of warpgroups has.
pub(super) struct Hopper {
    /// Warpgroups that multiply.
    consumers: usize,
    /// Tokens of a tile that stays and of one that passes by.
    pub rows: usize,
    pub columns: usize,
    /// Pairs of tiles that pass by and are in shared memory. Of those that stay there is one pair.
    stages: usize,
}

impl Hopper {
    pub const fn of(pass: Pass, size: usize) -> Self {
        use attention_hopper::{
            BACKWARD_COLUMNS, BACKWARD_STAGES, CONSUMERS, KEYS, ROWS, STAGES, backward_consumers,
            backward_rows,
        };
        let of_keys = match pass {
            Pass::Forward => return Self { consumers: CONSUMERS, rows: ROWS, columns: KEYS, stages: STAGES },
            Pass::BackwardQ => 0,
            Pass::BackwardKv => 1,
        };
        Self {
            consumers: backward_consumers(of_keys, size),
            rows: backward_rows(of_keys, size),
            columns: BACKWARD_COLUMNS,
            stages: BACKWARD_STAGES,
        }
    }

    const fn bytes(&self, size: usize) -> usize {
        attention_hopper::shared(self.rows, self.columns, self.stages, size)
    }

    const fn threads(&self) -> u32 {
        attention_hopper::threads(self.consumers) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_choose_the_engine() {
        use Engine::{Simt, Warp, WarpExact};
        let (f32, tf32) = (Compute::Exact, Compute::Tf32);
        for (dtype, features, general, compute, expected, size) in [
            (DType::BF16, 40, false, f32, Warp, Some(64)),
            (DType::F16, 96, true, tf32, Warp, Some(128)),
            (DType::F16, 36, false, tf32, Simt, Some(64)),
            (DType::F32, 36, false, tf32, Warp, Some(48)),
            (DType::F32, 36, false, f32, WarpExact, Some(48)),
            (DType::F32, 80, false, tf32, Warp, Some(96)),
            (DType::F32, 128, false, tf32, Warp, Some(128)),
            (DType::F32, 96, false, f32, WarpExact, Some(96)),
            (DType::F32, 100, false, f32, Simt, Some(128)),
            (DType::F32, 36, true, tf32, Simt, Some(64)),
            (DType::F32, 37, false, tf32, Simt, Some(64)),
            (DType::F64, 36, false, tf32, Simt, Some(64)),
            (DType::F32, 132, false, tf32, Warp, None),
        ] {
            let engine = Engine::of_aligned(dtype, [features; 2], general, compute);
            let found = (engine, engine.size(features, dtype));
            assert_eq!(found, (expected, size), "{dtype} {features} {general} {compute}");
        }
    }

    #[test]
    fn values_may_have_features_of_their_own() {
        let engine = |dtype, features| Engine::of_aligned(dtype, features, false, Compute::Exact);
        assert_eq!(engine(DType::F32, [80, 96]), Engine::WarpExact);
        assert_eq!(engine(DType::F32, [80, 100]), Engine::Simt);
        assert_eq!(engine(DType::F32, [80, 94]), Engine::Simt);
        assert_eq!(engine(DType::BF16, [64, 36]), Engine::Simt);
    }

    #[test]
    fn names_tell_size_and_precision() {
        let name = |engine: Engine, size, dtype| engine.kernel(Pass::BackwardKv, false, size, dtype);
        assert_eq!(name(Engine::Warp, 48, DType::F32).operation, "attention_warp_bwd_kv_48");
        assert_eq!(name(Engine::WarpExact, 96, DType::F32).operation, "attention_warp_exact_bwd_kv_96");
        assert_eq!(name(Engine::Simt, 64, DType::F64).operation, "attention_simt_bwd_kv_64");
    }

    /// What every target from compute capability 8.0 on gives a block.
    #[test]
    fn tiles_fit() {
        for size in SIZES {
            for pass in [Pass::Forward, Pass::BackwardQ, Pass::BackwardKv] {
                assert!(Engine::Warp.tile(pass, size, DType::F32).1 <= 99 << 10, "{size} {pass:?}");
            }
        }
    }
}
