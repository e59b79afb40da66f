//! Launch shape and shared memory of the block on CUDA for few rows (csrc/clifford/block/simt.cuh).

use super::{
    MOST_FEATURES, Sizes,
    cuda::{Pass, Plan},
};
use crate::{
    CudaDevice, DType,
    runtime::cuda::{Grid, Kernel},
};
use gradewise_core::Algebra;

/// Threads of a block, of which the warps without rows help with the matrices.
const THREADS: u32 = 256;

/// Warps of a block that have rows, and the rows that each works on at a time. More rows reuse the matrices better; fewer rows make more
/// blocks.
const SHAPES: [(usize, usize); 3] = [(4, 1), (8, 1), (8, 2)];

/// Most rows that a block works on at a time.
pub(super) const MOST_AT_A_TIME: usize = 16;

/// `None` if no kernel serves these sizes in this dtype. `is_wide` says that the parameters are `f32`.
pub(super) fn plan(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: Sizes,
    dtype: DType,
    is_wide: bool,
) -> Option<Plan> {
    let Sizes { batch, inputs, features } = sizes;
    if batch == 0 || inputs == 0 || features == 0 || features > MOST_FEATURES || dtype == DType::F64 {
        return None;
    }
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let (inputs4, features4) = (inputs.next_multiple_of(4), features.next_multiple_of(4));
    // With the odd pitch of the gradients' layout (`BlockSimt::place_matrices` in the kernels).
    let matrices = grades * features4 * (inputs4 + 2 * features4 + 3);
    let info = device.info();
    let values = 3 + 3 * grades + algebra.paths().len();
    let shared = |(warps, rows): (usize, usize)| {
        let group = warps * rows * blades;
        let forward = matrices + group * (inputs4 + features4);
        let backward = matrices + (group * (inputs4 + 4 * features4)).max(warps * values * 32);
        (forward * 4, backward * 4)
    };
    let fits = |shape: &(usize, usize)| shared(*shape).1 <= info.max_shared_memory;
    let multiprocessors = info.multiprocessors.max(1) as usize;
    // The first shape with at most one block per multiprocessor, or the largest.
    let enough = |(warps, rows): &(usize, usize)| batch.div_ceil(warps * rows) <= multiprocessors;
    let fitting = || SHAPES.into_iter().filter(fits);
    let shape = fitting().find(enough).or_else(|| fitting().next_back())?;
    let names = if shape.1 == 1 {
        ["block_simt_fwd_r1", "block_simt_bwd_r1"]
    } else {
        ["block_simt_fwd_r2", "block_simt_bwd_r2"]
    };
    let [forward, backward] = names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    if !device.has_kernel(&forward) {
        return None;
    }
    let (shared_forward, shared_backward) = shared(shape);
    let blocks = batch.div_ceil(shape.0 * shape.1).min(multiprocessors);
    let grid = Grid::blocks(blocks, THREADS);
    Some(Plan {
        sizes,
        dtype,
        working_warps: shape.0,
        is_wide,
        blocks,
        forward: Pass { kernel: forward, unaligned: None, grid: grid.shared(shared_forward) },
        backward: Pass { kernel: backward, unaligned: None, grid: grid.shared(shared_backward) },
    })
}
