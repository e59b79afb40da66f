//! Launch shape and shared memory of the block on CUDA for many rows, and for 16-bit features (csrc/clifford/mv_tiles.cuh).

use super::{MOST_FEATURES, Sizes, cuda::Plan};
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

/// Features of a block rounded up, and the pitch of rows of features and of matrices in shared memory (`PITCH`, `ACROSS` in the
/// kernels).
const WIDTH: usize = 32;
const PITCH: usize = WIDTH + 4;
const ACROSS: usize = WIDTH + 8;

/// Most inputs of the backward pass: two tiles of 32.
const MOST_INPUTS: usize = 64;

/// Whether there are so many rows that matrix instructions pay for `f32`: eight tiles for each multiprocessor. On an H200 a step of the
/// n-body model takes as long by either kernel at a quarter of that (docs/kernels.md).
pub(super) fn pay(device: &CudaDevice, sizes: Sizes) -> bool {
    sizes.batch >= 8 * ROWS * GROUPS * device.info().multiprocessors.max(1) as usize
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
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let (inputs8, features8) = (inputs.next_multiple_of(8), features.next_multiple_of(8));
    let parameters = (algebra.paths().len() + 3 * grades + 3) * WIDTH;
    let group = blades * ROWS * (inputs8 + 4 + PITCH) + 4 * ROWS;
    let shared =
        |groups: usize| 4 * (grades * (inputs8 + 2 * features8) * ACROSS + parameters + groups * group);
    let groups = if shared(MOST_GROUPS) <= info.max_shared_memory { MOST_GROUPS } else { GROUPS };
    let shared_forward = shared(groups);
    let tiles = inputs.div_ceil(32);
    let rows = blades * GROUPS * ROWS * (2 * PITCH + 32 * tiles + 4);
    let shared_backward =
        4 * (grades * (32 * tiles + 2 * WIDTH) * PITCH + parameters + rows + GROUPS * 8 * ROWS);
    if shared_forward.max(shared_backward) > info.max_shared_memory {
        return None;
    }
    let names = ["mv_tiles_fwd", if tiles == 1 { "mv_tiles_bwd1" } else { "mv_tiles_bwd2" }];
    let [forward, backward] = names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    if !device.kernels().has(device, &forward) {
        return None;
    }
    let blocks = |rows: usize| batch.div_ceil(rows).min(info.multiprocessors.max(1) as usize);
    let grid = |groups: usize| Grid::blocks(blocks(groups * ROWS), (groups * GROUP_THREADS) as u32);
    Some(Plan {
        sizes,
        dtype,
        last: usize::from(is_wide),
        blocks: blocks(GROUPS * ROWS),
        forward: (forward, grid(groups).shared(shared_forward)),
        backward: (backward, grid(GROUPS).shared(shared_backward)),
    })
}
