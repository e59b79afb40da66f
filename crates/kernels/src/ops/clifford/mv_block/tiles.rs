//! The block on CUDA for many rows, and for 16-bit features (csrc/clifford/mv_tiles.cuh).

use super::{
    Forward, MOST_FEATURES, NAME, Sizes,
    cuda::{Weights, gathered, gradient_elements},
};
use crate::{
    Array, CudaDevice, DType, Result,
    cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// Rows that a group of four warps works on, and the groups of a block.
const ROWS: usize = 16;
const GROUPS: usize = 2;
const THREADS: u32 = 128 * GROUPS as u32;

/// Features of a block rounded up, and the pitch of rows of features and of matrices in shared memory (`PITCH`, `ACROSS` in the
/// kernels).
const WIDTH: usize = 32;
const PITCH: usize = WIDTH + 4;
const ACROSS: usize = WIDTH + 8;

/// Most inputs of the backward pass: two tiles of 32.
const MOST_INPUTS: usize = 64;

/// The launches, and the shared memory that they take.
pub(super) struct Plan {
    sizes: Sizes,
    dtype: DType,
    forward: Kernel,
    backward: Kernel,
    blocks: usize,
    shared_forward: usize,
    shared_backward: usize,
}

/// Whether there are so many rows that matrix instructions make up for tiles of 32 rows. Measured on an H200 (docs/kernels.md).
pub(super) fn pay(device: &CudaDevice, sizes: Sizes) -> bool {
    sizes.batch >= ROWS * GROUPS * device.info().multiprocessors.max(1) as usize
}

impl Plan {
    /// `None` if no kernel serves these sizes in this dtype.
    pub fn new(device: &CudaDevice, algebra: &Algebra, sizes: Sizes, dtype: DType) -> Option<Self> {
        let Sizes { batch, inputs, features } = sizes;
        let info = device.info();
        // Elsewhere the kernels are empty, for want of shared memory.
        if !matches!(info.compute_capability.0, 9..=11)
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
        let forward = grades * (inputs8 + 2 * features8) * ACROSS + parameters + GROUPS * group;
        let tiles = inputs.div_ceil(32);
        let rows = blades * GROUPS * ROWS * (2 * PITCH + 32 * tiles + 4);
        let backward = grades * (32 * tiles + 2 * WIDTH) * PITCH + parameters + rows + GROUPS * 8 * ROWS;
        if 4 * forward.max(backward) > info.max_shared_memory {
            return None;
        }
        let names = ["mv_tiles_fwd", if tiles == 1 { "mv_tiles_bwd1" } else { "mv_tiles_bwd2" }];
        let [forward_kernel, backward_kernel] =
            names.map(|name| Kernel::of(name, algebra.signature(), dtype));
        if !device.kernels().has(device, &forward_kernel) {
            return None;
        }
        let blocks = batch.div_ceil(GROUPS * ROWS).min(info.multiprocessors.max(1) as usize);
        Some(Self {
            sizes,
            dtype,
            forward: forward_kernel,
            backward: backward_kernel,
            blocks,
            shared_forward: 4 * forward,
            shared_backward: 4 * backward,
        })
    }

    fn weights(&self, arrays: &[Array]) -> Weights {
        Weights::new(self.sizes, arrays, usize::from(arrays[1].dtype() == DType::F32))
    }
}

/// `arrays` are the operands without the residual, contiguous, as it is.
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    plan: &Plan,
    arrays: &[Array],
    residual: Option<&Array>,
) -> Result<Forward> {
    let Sizes { batch, features, .. } = plan.sizes;
    let like = || Array::for_kernel(NAME, [algebra.blade_count(), batch, features], plan.dtype, device);
    let (output, kept) = (like()?, [like()?, like()?, like()?]);
    let args = Args::new()
        .value(&plan.weights(arrays))
        .array(&arrays[0])
        .optional(residual)
        .array(&output)
        .array(&kept[0])
        .array(&kept[1])
        .array(&kept[2]);
    let grid = Grid::blocks(plan.blocks, THREADS).shared(plan.shared_forward);
    device.launch(NAME, plan.forward, grid, args)?;
    Ok(Forward { output, kept })
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    plan: &Plan,
    arrays: &[Array],
    kept: &[Array; 3],
    grad: &Array,
    need_x: bool,
) -> Result<Vec<Option<Array>>> {
    let grad_x =
        need_x.then(|| Array::for_kernel(NAME, arrays[0].shape(), plan.dtype, device)).transpose()?;
    let partials = Array::for_kernel(NAME, [plan.blocks, gradient_elements(arrays)], DType::F32, device)?;
    let args = Args::new()
        .value(&plan.weights(arrays))
        .array(&arrays[0])
        .array(&kept[0])
        .array(&kept[1])
        .array(&kept[2])
        .array(grad)
        .optional(grad_x.as_ref())
        .array(&partials);
    let grid = Grid::blocks(plan.blocks, THREADS).shared(plan.shared_backward);
    device.launch(NAME, plan.backward, grid, args)?;
    gathered(device, arrays, grad_x, &partials)
}
