//! The kernels of attention on CUDA: which one serves a problem, and its sizes.

use super::Problem;
use crate::{
    Array, CudaDevice, DType,
    csrc::{attention_hopper, attention_simt, attention_warp},
    runtime::cuda::Kernel,
};

/// The instructions that compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Ordinary multiply-adds.
    Simt,
    /// Warp-wide matrix instructions.
    Warp,
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
pub(super) const FEATURES: [usize; 3] = [32, 64, 128];

impl Engine {
    pub fn choose(device: &CudaDevice, operands: &[&Array], features: usize) -> Self {
        // The kernels copy 16 bytes at a time.
        let aligned = |array: &&Array| {
            let mut axes = array.dims().iter().zip(array.strides()).take(3);
            array.cuda_address().is_multiple_of(16)
                && axes.all(|(&count, &step)| count == 1 || (step * array.dtype().size()).is_multiple_of(16))
        };
        let served = operands.iter().all(|array| array.dtype().size() == 2)
            && features.is_multiple_of(8)
            && device.info().compute_capability.0 >= 8;
        if served && operands.iter().all(aligned) { Self::Warp } else { Self::Simt }
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
            && i32::try_from(2 * tiles).is_ok()
            && device.options().attention_warpgroups
            && steps
            && problem.features > 32
            && problem.queries.min(problem.keys) >= ENOUGH
            && device.has_warpgroups();
        if served { Self::Hopper } else { self }
    }

    pub const fn threads(self, pass: Pass, size: usize) -> u32 {
        match self {
            Self::Simt => attention_simt::THREADS as u32,
            Self::Warp => attention_warp::THREADS as u32,
            Self::Hopper => Hopper::of(pass, size).threads(),
        }
    }

    /// `general`: with dropout or packed sequences.
    pub fn kernel(self, pass: Pass, general: bool, size: usize, dtype: DType) -> Kernel {
        macro_rules! names {
            ($($engine:ident $general:literal: $name:literal,)*) => {
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
                    concat!("attention_", $engine, "_", $pass, "_64"),
                    concat!("attention_", $engine, "_", $pass, "_128"),
                ]
            };
        }
        let names = names! {
            Simt false: "simt",
            Simt true: "simt_general",
            Warp false: "warp",
            Warp true: "warp_general",
            Hopper false: "hopper",
            Hopper true: "hopper_general",
        };
        Kernel::new(names[FEATURES.iter().position(|&each| each == size).unwrap_or(0)], dtype)
    }

    /// Rows of a tile, and bytes of shared memory.
    pub fn tile(self, pass: Pass, size: usize, dtype: DType) -> (usize, usize) {
        match self {
            Self::Simt => {
                let (backward, element) = ((pass != Pass::Forward).into(), dtype.accumulator().size());
                (attention_simt::rows(backward, element), attention_simt::shared(backward, size, element))
            }
            Self::Warp if pass == Pass::Forward => (attention_warp::ROWS, attention_warp::forward(size)),
            Self::Warp => (attention_warp::ROWS, attention_warp::backward(size)),
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
