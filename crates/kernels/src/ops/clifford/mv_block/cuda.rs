//! The block on CUDA for few rows (csrc/clifford/mv_block.cuh).

use super::{Forward, MOST_FEATURES, NAME, Sizes};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// How the rows are dealt out, and the shared memory that takes.
pub(super) struct Plan {
    sizes: Sizes,
    forward: Kernel,
    backward: Kernel,
    blocks: usize,
    /// Warps of a block that have rows.
    warps: usize,
    shared_forward: usize,
    shared_backward: usize,
}

/// Threads of a block, of which the warps without rows help with the matrices.
const THREADS: u32 = 256;

/// Warps of a block that have rows, and the rows that each works on at a time: more rows make better use of the matrices, fewer make
/// more blocks.
const SHAPES: [(usize, usize); 3] = [(4, 1), (8, 1), (8, 2)];

impl Plan {
    /// `None` if no kernel serves these sizes.
    pub fn new(device: &CudaDevice, algebra: &Algebra, sizes: Sizes) -> Option<Self> {
        let Sizes { batch, inputs, features } = sizes;
        if batch == 0 || inputs == 0 || features == 0 || features > MOST_FEATURES {
            return None;
        }
        let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
        let (inputs4, features4) = (inputs.next_multiple_of(4), features.next_multiple_of(4));
        // With the odd pitch of the gradients' layout (MvBlock::open in the kernels).
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
        // The first that gives every multiprocessor one block, or the largest.
        let enough = |(warps, rows): &(usize, usize)| batch.div_ceil(warps * rows) <= multiprocessors;
        let fitting = || SHAPES.into_iter().filter(fits);
        let shape = fitting().find(enough).or_else(|| fitting().next_back())?;
        let names = if shape.1 == 1 {
            ["mv_block_fwd_r1", "mv_block_bwd_r1"]
        } else {
            ["mv_block_fwd_r2", "mv_block_bwd_r2"]
        };
        let [forward, backward] = names.map(|name| Kernel::of(name, algebra.signature(), DType::F32));
        if !device.kernels().has(device, &forward) {
            return None;
        }
        let (shared_forward, shared_backward) = shared(shape);
        let blocks = batch.div_ceil(shape.0 * shape.1).min(multiprocessors);
        Some(Self { sizes, forward, backward, blocks, warps: shape.0, shared_forward, shared_backward })
    }
}

/// `MvBlockWeights` and `MvTilesWeights` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
pub(super) struct Weights {
    parameters: [u64; 10],
    sizes: [u64; 4],
}

impl Weights {
    /// `last` is the number behind the sizes.
    pub fn new(sizes: Sizes, arrays: &[Array], last: usize) -> Self {
        let Sizes { batch, inputs, features } = sizes;
        let mut parameters = [0; 10];
        for (address, array) in parameters.iter_mut().zip(&arrays[1..]) {
            *address = array.cuda_address();
        }
        Self { parameters, sizes: [batch, inputs, features, last].map(|size| size as u64) }
    }
}

/// The parameters' gradients lie one after the other, each from a multiple of 4 on (Places in the kernels): the number of their elements.
pub(super) fn gradient_elements(arrays: &[Array]) -> usize {
    arrays[1..].iter().map(|array| array.elements().next_multiple_of(4)).sum()
}

/// All gradients but the residual's, from that of `x` and the blocks' sums `[blocks, gradient_elements]`.
pub(super) fn gathered(
    device: &CudaDevice,
    arrays: &[Array],
    grad_x: Option<Array>,
    partials: &Array,
) -> Result<Vec<Option<Array>>> {
    let count = gradient_elements(arrays);
    let sums = sum_partials(device, NAME, partials, [count], arrays[1].dtype(), 1.0)?;
    // With room for the gradient of the residual, which is the cotangent.
    let (mut gradients, mut place) = (Vec::with_capacity(arrays.len() + 1), 0);
    gradients.push(grad_x);
    for array in &arrays[1..] {
        let elements = array.elements();
        gradients.push(Some(sums.slice(0, place..place + elements)?.reshape(array.shape())?));
        place += elements.next_multiple_of(4);
    }
    Ok(gradients)
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
    let like = || Array::for_kernel(NAME, [algebra.blade_count(), batch, features], DType::F32, device);
    let (output, kept) = (like()?, [like()?, like()?, like()?]);
    let args = Args::new()
        .value(&Weights::new(plan.sizes, arrays, plan.warps))
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
        need_x.then(|| Array::for_kernel(NAME, arrays[0].shape(), DType::F32, device)).transpose()?;
    let partials = Array::for_kernel(NAME, [plan.blocks, gradient_elements(arrays)], DType::F32, device)?;
    let args = Args::new()
        .value(&Weights::new(plan.sizes, arrays, plan.warps))
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
