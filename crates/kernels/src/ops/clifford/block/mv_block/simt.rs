//! The launch of the block on CUDA by ordinary arithmetic (csrc/clifford/block/simt.cuh).

use super::cuda::{Pass, Plan};
use crate::{
    CudaDevice, DType,
    ops::clifford::block::{
        operands::Sizes,
        simt::{MOST_FEATURES, Shape, THREADS},
    },
    runtime::cuda::{Grid, Kernel},
};
use gradewise_core::Algebra;

/// Most rows that a block works on at a time where the kernels for many rows are the alternative: those of up to 8 blades.
pub(super) const MOST_AT_A_TIME: usize = 16;

/// The kernels of a shape, forward and backward.
fn names(shape: Shape) -> [&'static str; 2] {
    let forward = match (shape.lanes, shape.rows[0]) {
        (16, 1) => "block_simt_fwd_l16_r1",
        (16, _) => "block_simt_fwd_l16_r2",
        (_, 1) => "block_simt_fwd_l32_r1",
        _ => "block_simt_fwd_l32_r2",
    };
    let backward = match (shape.lanes, shape.rows[1]) {
        (16, _) => "block_simt_bwd_l16_r1",
        (_, 1) => "block_simt_bwd_l32_r1",
        _ => "block_simt_bwd_l32_r2",
    };
    [forward, backward]
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
    if batch == 0 || inputs == 0 || features == 0 || features > MOST_FEATURES || dtype == DType::F64 {
        return None;
    }
    let shape = Shape::choose(device, algebra, sizes, 2, [2, 2])?;
    let kernels = names(shape).map(|name| Kernel::of(name, algebra.signature(), dtype));
    if !kernels.iter().all(|kernel| device.has_kernel(kernel)) {
        return None;
    }
    let (blocks, shared) = (shape.blocks(device, batch), shape.shared(algebra, sizes, 2));
    let [forward, backward] = [0, 1].map(|pass| Pass {
        kernel: kernels[pass],
        unaligned: None,
        grid: Grid::blocks(blocks[pass], THREADS as u32).shared(shared[pass]),
    });
    Some(Plan { sizes, dtype, working_groups: shape.groups, is_wide, blocks: blocks[1], forward, backward })
}
