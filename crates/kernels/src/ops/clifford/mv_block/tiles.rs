//! Launch shape and shared memory of the block on CUDA for many rows, and for 16-bit features (csrc/clifford/mv_tiles.cuh).

use super::{MOST_FEATURES, Sizes, cuda::Plan, rows};
use crate::{
    CudaDevice, DType,
    cuda::{Grid, Kernel},
};
use gradewise_core::Algebra;

/// Rows that a group of four warps works on, and the groups of a block: two backward, forward three where they fit.
const ROWS: usize = 16;
const GROUPS: usize = 2;
const MOST_GROUPS: usize = 3;
const GROUP_THREADS: usize = 128;

/// Features of a block rounded up, and columns of a tile of inputs.
const WIDTH: usize = 32;

/// Most inputs of the backward pass: two tiles.
const MOST_INPUTS: usize = 2 * WIDTH;

/// Whether there are so many rows that matrix instructions pay (docs/kernels.md): in `f32` eight tiles for each multiprocessor; in 16 bits
/// more rows than the other kernel works on at a time.
pub(super) fn pay(device: &CudaDevice, sizes: Sizes, dtype: DType) -> bool {
    let multiprocessors = device.info().multiprocessors.max(1) as usize;
    match dtype {
        DType::F32 => sizes.batch >= 8 * ROWS * GROUPS * multiprocessors,
        _ => sizes.batch > rows::MOST_AT_A_TIME * multiprocessors,
    }
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
    let (groups, shared_forward, shared_backward) =
        if dtype == DType::F32 { shared_f32(algebra, sizes, most) } else { shared_16_bits(algebra, tiles) };
    if shared_forward.max(shared_backward) > most {
        return None;
    }
    let names = match (dtype, tiles) {
        (DType::F32, 1) => ["mv_tiles_fwd", "mv_tiles_bwd1"],
        (DType::F32, _) => ["mv_tiles_fwd", "mv_tiles_bwd2"],
        (_, 1) => ["mv_tiles_fwd1", "mv_tiles_bwd1"],
        _ => ["mv_tiles_fwd2", "mv_tiles_bwd2"],
    };
    let [forward, backward] = names.map(|name| Kernel::of(name, algebra.signature(), dtype));
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
        forward: (forward, grid(groups).shared(shared_forward)),
        backward: (backward, grid(GROUPS).shared(shared_backward)),
    })
}

/// Groups of a block forward, and the shared memory of both passes in bytes, of which there is `most`
/// (csrc/clifford/mv_tiles_f32.cuh).
fn shared_f32(algebra: &Algebra, sizes: Sizes, most: usize) -> (usize, usize, usize) {
    // Of rows of features and of matrices (`PITCH`, `ACROSS` in the kernels).
    const PITCH: usize = WIDTH + 4;
    const ACROSS: usize = WIDTH + 8;
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let (inputs8, features8) = (sizes.inputs.next_multiple_of(8), sizes.features.next_multiple_of(8));
    let parameters = (algebra.paths().len() + 3 * grades + 3) * WIDTH;
    let group = blades * ROWS * (inputs8 + 4 + PITCH) + 4 * ROWS;
    let forward =
        |groups: usize| 4 * (grades * (inputs8 + 2 * features8) * ACROSS + parameters + groups * group);
    let groups = if forward(MOST_GROUPS) <= most { MOST_GROUPS } else { GROUPS };
    let padded = sizes.inputs.next_multiple_of(WIDTH);
    let rows = blades * GROUPS * ROWS * (2 * PITCH + padded + 4);
    let backward = 4 * (grades * (padded + 2 * WIDTH) * PITCH + parameters + rows + GROUPS * 8 * ROWS);
    (groups, forward(groups), backward)
}

/// The same for 16-bit features and `tiles` tiles of inputs (csrc/clifford/mv_tiles.cuh).
fn shared_16_bits(algebra: &Algebra, tiles: usize) -> (usize, usize, usize) {
    // Bytes of a row of a tile.
    const ROW: usize = 2 * WIDTH;
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let constant = (2 + tiles) * grades * WIDTH * ROW + 4 * (algebra.paths().len() + 4 * grades + 3) * WIDTH;
    // 16 rows of features, or of a tile of inputs.
    let rows = blades * ROWS * ROW;
    let barrier = size_of::<u64>();
    let forward = constant + MOST_GROUPS * ((2 * tiles + 1) * rows + 16 * ROWS + 2 * barrier);
    // Sums of parameters' gradients, a pair for each thread (`Sums` in the kernel).
    let pairs = 2 * grades + 3 + (algebra.paths().len() + grades).div_ceil(8);
    let sums = pairs * 8 * GROUPS * GROUP_THREADS;
    let backward = constant + GROUPS * ((3 + 4 + tiles) * rows + 32 * ROWS) + sums + 3 * barrier;
    (MOST_GROUPS, forward, backward)
}
