//! The kernels of attention on CUDA: which one serves a problem, and its sizes.

use super::Problem;
use crate::{Array, CudaDevice, DType, runtime::cuda::Kernel};

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
            Self::Simt => 256,
            Self::Warp => 128,
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
                let element = dtype.accumulator().size();
                let rows = if pass == Pass::Forward && element == 4 { 32 } else { 16 };
                let tiles = if pass == Pass::Forward { 2 } else { 3 };
                (rows, (tiles * rows * (size + 1) + rows * (rows + 1)) * element)
            }
            Self::Warp => {
                let rows = if pass == Pass::Forward { 64 + 4 * 64 } else { 2 * 64 + 4 * 32 };
                (64, rows * (size + 8) * 2)
            }
            Self::Hopper => {
                let hopper = Hopper::of(pass, size);
                (hopper.rows, hopper.bytes(size))
            }
        }
    }
}

/// What a kernel of csrc/attention/hopper.cuh or hopper_backward.cuh has.
pub(super) struct Hopper {
    /// Warpgroups that multiply.
    consumers: usize,
    /// Tokens of a tile that stays and of one that passes by.
    pub rows: usize,
    pub columns: usize,
    /// Tiles that pass by: as many pairs are in shared memory. Of those that stay there is one pair.
    stages: usize,
}

impl Hopper {
    /// Shared memory beside the tiles: barriers, and in the backward pass two numbers for each query of a stage.
    const MORE_BYTES: usize = 2048;

    pub const fn of(pass: Pass, size: usize) -> Self {
        match pass {
            Pass::Forward => Self { consumers: 2, rows: 128, columns: 128, stages: 2 },
            Pass::BackwardQ if size == 64 => Self { consumers: 3, rows: 192, columns: 64, stages: 3 },
            Pass::BackwardQ | Pass::BackwardKv => Self { consumers: 2, rows: 128, columns: 64, stages: 3 },
        }
    }

    const fn bytes(&self, size: usize) -> usize {
        2 * (self.rows + self.stages * self.columns) * size * 2 + Self::MORE_BYTES
    }

    const fn threads(&self) -> u32 {
        128 * (self.consumers as u32 + 1)
    }
}
