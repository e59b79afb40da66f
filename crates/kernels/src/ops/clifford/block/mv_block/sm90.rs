//! Launch shape of the block on CUDA for many rows of f32 (csrc/clifford/block/sm90_f32x3.cuh) or of 16-bit features (sm90_16bit.cuh).

use super::{
    MOST_FEATURES, Sizes,
    cuda::{Pass, Plan},
    simt,
};
use crate::{
    CudaDevice, DType,
    csrc::block_sm90::{GROUP_THREADS, ROWS, WIDTH},
    runtime::cuda::{Grid, Kernel, Launch},
};
use gradewise_core::Algebra;

/// Most inputs of the backward pass: two tiles.
const MOST_INPUTS: usize = 2 * WIDTH;

/// Whether there are so many rows that matrix instructions pay (docs/kernels/block.md): more than the other kernel works on at a time.
pub(super) fn pay(device: &CudaDevice, sizes: Sizes) -> bool {
    sizes.batch > simt::MOST_AT_A_TIME * device.info().multiprocessors.max(1) as usize
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
    let kernels = |names: [&'static str; 2]| names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    let single = match tiles {
        1 => ["block_sm90_f32x3_unaligned_fwd_in32", "block_sm90_f32x3_unaligned_bwd_in32"],
        _ => ["block_sm90_f32x3_unaligned_fwd_in64", "block_sm90_f32x3_unaligned_bwd_in64"],
    };
    let (names, unaligned) = match (dtype, tiles) {
        (DType::F32, _) if features % 2 != 0 => (single, None),
        (DType::F32, 1) => {
            (["block_sm90_f32x3_fwd_in32", "block_sm90_f32x3_bwd_in32"], Some(kernels(single)))
        }
        (DType::F32, _) => {
            (["block_sm90_f32x3_fwd_in64", "block_sm90_f32x3_bwd_in64"], Some(kernels(single)))
        }
        (_, 1) => (["block_sm90_16bit_fwd_in32", "block_sm90_16bit_bwd_in32"], None),
        _ => (["block_sm90_16bit_fwd_in64", "block_sm90_16bit_bwd_in64"], None),
    };
    let [forward, backward] = kernels(names);
    let [forward_unaligned, backward_unaligned] = unaligned.map_or([None; 2], |kernels| kernels.map(Some));
    let [launch_forward, launch_backward] =
        [&forward, &backward].map(|kernel| device.kernels().launch(kernel));
    let (launch_forward, launch_backward) = (launch_forward?, launch_backward?);
    if launch_forward.shared.max(launch_backward.shared) > info.max_shared_memory {
        return None;
    }
    let blocks = |launch: Launch| {
        let rows = launch.threads as usize / GROUP_THREADS * ROWS;
        batch.div_ceil(rows).min(info.multiprocessors.max(1) as usize)
    };
    let grid = |launch: Launch| Grid::blocks(blocks(launch), launch.threads).shared(launch.shared);
    Some(Plan {
        sizes,
        dtype,
        working_groups: 0,
        is_wide,
        blocks: blocks(launch_backward),
        forward: Pass { kernel: forward, unaligned: forward_unaligned, grid: grid(launch_forward) },
        backward: Pass { kernel: backward, unaligned: backward_unaligned, grid: grid(launch_backward) },
    })
}
