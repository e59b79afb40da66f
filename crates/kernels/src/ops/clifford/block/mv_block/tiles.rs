//! Launch shape and shared memory of the block on CUDA for many rows, and for 16-bit features (csrc/clifford/mv_tiles.cuh).

use super::{
    MOST_FEATURES, Sizes,
    cuda::{Pass, Plan},
    rows,
};
use crate::{
    CudaDevice, DType,
    runtime::cuda::{Grid, Kernel},
};
use gradewise_core::Algebra;

/// Rows that a group of four warps works on, and the groups of a block: two, but three forward in 16 bits.
const ROWS: usize = 16;
const GROUPS: usize = 2;
const GROUPS_16_BITS: usize = 3;
const GROUP_THREADS: usize = 128;

/// Features of a block rounded up, and columns of a tile of inputs.
const WIDTH: usize = 32;

/// Most inputs of the backward pass: two tiles.
const MOST_INPUTS: usize = 2 * WIDTH;

/// Whether there are so many rows that matrix instructions pay (docs/kernels/block.md): more than the other kernel works on at a time.
pub(super) fn pay(device: &CudaDevice, sizes: Sizes) -> bool {
    sizes.batch > rows::MOST_AT_A_TIME * device.info().multiprocessors.max(1) as usize
}

/// `None` if no kernel serves these sizes in this dtype. `is_wide` says that the parameters are `f32`.
pub(super) fn plan(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: Sizes,
    dtype: DType,
    is_wide: bool,
) -> Option<Plan> {
    let Sizes { batch, inputs, features } = sizes;
    let info = device.info();
    // For other architectures the kernels are compiled as traps.
    if info.compute_capability != (9, 0)
        || [batch, inputs, features].contains(&0)
        || features > MOST_FEATURES
        || inputs > MOST_INPUTS
        || dtype == DType::F64
    {
        return None;
    }
    let tiles = inputs.div_ceil(WIDTH);
    let most = info.max_shared_memory;
    let (groups, (shared_forward, shared_backward)) = match dtype {
        DType::F32 => (GROUPS, shared_f32(algebra, tiles)),
        _ => (GROUPS_16_BITS, shared_16_bits(algebra, tiles)),
    };
    if shared_forward.max(shared_backward) > most {
        return None;
    }
    let kernels = |names: [&'static str; 2]| names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    let single = match tiles {
        1 => ["mv_split_single_fwd1", "mv_split_single_bwd1"],
        _ => ["mv_split_single_fwd2", "mv_split_single_bwd2"],
    };
    let (names, unaligned) = match (dtype, tiles) {
        (DType::F32, _) if features % 2 != 0 => (single, None),
        (DType::F32, 1) => (["mv_split_fwd1", "mv_split_bwd1"], Some(kernels(single))),
        (DType::F32, _) => (["mv_split_fwd2", "mv_split_bwd2"], Some(kernels(single))),
        (_, 1) => (["mv_tiles_fwd1", "mv_tiles_bwd1"], None),
        _ => (["mv_tiles_fwd2", "mv_tiles_bwd2"], None),
    };
    let [forward, backward] = kernels(names);
    let [forward_unaligned, backward_unaligned] = unaligned.map_or([None; 2], |kernels| kernels.map(Some));
    if !device.kernels().has(device, &forward) {
        return None;
    }
    let blocks = |rows: usize| batch.div_ceil(rows).min(info.multiprocessors.max(1) as usize);
    let grid = |groups: usize| Grid::blocks(blocks(groups * ROWS), (groups * GROUP_THREADS) as u32);
    Some(Plan {
        sizes,
        dtype,
        working_warps: 0,
        is_wide,
        blocks: blocks(GROUPS * ROWS),
        forward: Pass {
            kernel: forward,
            unaligned: forward_unaligned,
            grid: grid(groups).shared(shared_forward),
        },
        backward: Pass {
            kernel: backward,
            unaligned: backward_unaligned,
            grid: grid(GROUPS).shared(shared_backward),
        },
    })
}

/// Shared memory of both passes in bytes for `f32` and `tiles` tiles of inputs (csrc/clifford/mv_split.cuh).
fn shared_f32(algebra: &Algebra, tiles: usize) -> (usize, usize) {
    // Bytes of a row of a tile.
    const ROW: usize = 4 * WIDTH;
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let scales = 4 * size_of::<f32>();
    let constant =
        (2 + tiles) * grades * WIDTH * ROW + 4 * (algebra.paths().len() + 3 * grades + 3) * WIDTH + scales;
    // 16 rows of features, or of a tile of inputs.
    let rows = blades * ROWS * ROW;
    let forward = constant + GROUPS * ((tiles + 1) * rows + 4 * 5 * ROWS);
    // Sums of parameters' gradients of both features of a thread (`SharedSums` in the kernel).
    let sums = 2 * (2 * grades + 3 + (algebra.paths().len() + grades).div_ceil(8));
    let backward =
        constant + GROUPS * (4 * rows + 3 * scales + 4 * 8 * ROWS) + sums * 4 * GROUPS * GROUP_THREADS;
    (forward, backward)
}

/// The same for 16-bit features and `tiles` tiles of inputs (csrc/clifford/mv_tiles.cuh).
fn shared_16_bits(algebra: &Algebra, tiles: usize) -> (usize, usize) {
    // Bytes of a row of a tile.
    const ROW: usize = 2 * WIDTH;
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let constant = (2 + tiles) * grades * WIDTH * ROW + 4 * (algebra.paths().len() + 4 * grades + 3) * WIDTH;
    // 16 rows of features, or of a tile of inputs.
    let rows = blades * ROWS * ROW;
    let barrier = size_of::<u64>();
    let forward = constant + GROUPS_16_BITS * ((2 * tiles + 1) * rows + 16 * ROWS + 2 * barrier);
    // Sums of parameters' gradients, a pair for each thread (`Sums` in the kernel).
    let pairs = 2 * grades + 3 + (algebra.paths().len() + grades).div_ceil(8);
    let sums = pairs * 8 * GROUPS * GROUP_THREADS;
    let backward = constant + GROUPS * ((3 + 4 + tiles) * rows + 32 * ROWS) + sums + 3 * barrier;
    (forward, backward)
}
