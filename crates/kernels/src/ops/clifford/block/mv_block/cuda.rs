//! The launches of the block on CUDA that one kernel computes in each pass, for few rows or many.

use super::{Forward, Kept, NAME, Sizes};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    ops::clifford::block::operands::Weights,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// How a block runs: one of the two kernels of each pass, for sizes and a dtype.
pub(super) struct Plan {
    pub sizes: Sizes,
    /// Dtype of the features and of the saved intermediates.
    pub dtype: DType,
    /// Groups of lanes of a block that have rows, where rows go to groups.
    pub working_groups: usize,
    /// Whether the parameters are `f32`.
    pub is_wide: bool,
    /// Blocks of the backward pass, each with partial sums of its own.
    pub blocks: usize,
    pub forward: Pass,
    pub backward: Pass,
}

/// The launch of a pass.
pub(super) struct Pass {
    pub kernel: Kernel,
    /// For arrays that are not aligned to two elements, where the kernel accesses features two at a time.
    pub unaligned: Option<Kernel>,
    pub grid: Grid,
}

impl Pass {
    /// The kernel for these arrays of features.
    fn kernel_for<'a>(&self, mut features: impl Iterator<Item = &'a Array>) -> Kernel {
        let is_aligned = |array: &Array| array.cuda_address().is_multiple_of(2 * array.dtype().size() as u64);
        match self.unaligned {
            Some(kernel) if !features.all(is_aligned) => kernel,
            _ => self.kernel,
        }
    }
}

/// The operands of a launch.
fn weights(plan: &Plan, arrays: &[Array]) -> Weights {
    Weights::new(plan.sizes, plan.working_groups, plan.is_wide, arrays[1..].iter().map(Some))
}

/// The parameters' gradients lie one after the other, each from a multiple of 4 on (`BlockGradientLayout` in the kernels), but for those of the operands
/// numbered in `apart`: the number of their elements.
pub(super) fn gradient_elements(arrays: &[Array], apart: &[usize]) -> usize {
    let joined = (1..arrays.len()).filter(|number| !apart.contains(number));
    joined.map(|number| arrays[number].elements().next_multiple_of(4)).sum()
}

/// All gradients but the residual's, from that of `x`, the blocks' sums `[blocks, gradient_elements]`, and those that are `apart`, by the
/// number of the operand.
pub(super) fn gathered<const N: usize>(
    device: &CudaDevice,
    arrays: &[Array],
    grad_x: Option<Array>,
    partials: &Array,
    apart: [(usize, Array); N],
) -> Result<Vec<Option<Array>>> {
    let count = partials.dims()[1];
    let sums = sum_partials(device, NAME, partials, [count], arrays[1].dtype(), 1.0)?;
    // Reserves one more for the gradient of the residual, which is the cotangent.
    let (mut gradients, mut place) = (Vec::with_capacity(arrays.len() + 1), 0);
    gradients.push(grad_x);
    for (number, array) in arrays.iter().enumerate().skip(1) {
        let gradient = match apart.iter().find(|(other, _)| *other == number) {
            Some((_, gradient)) => gradient.reshape(array.shape())?,
            None => {
                let elements = array.elements();
                let gradient = sums.slice(0, place..place + elements)?.reshape(array.shape())?;
                place += elements.next_multiple_of(4);
                gradient
            }
        };
        gradients.push(Some(gradient));
    }
    Ok(gradients)
}

/// `arrays` are the operands without the residual; all operands are contiguous, the residual included.
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
        .value(&weights(plan, arrays))
        .array(&arrays[0])
        .optional(residual)
        .array(&output)
        .array(&kept[0])
        .array(&kept[1])
        .array(&kept[2]);
    let kernel = plan.forward.kernel_for(kept.iter().chain([&output]).chain(residual));
    // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous; output and intermediates have its shape. 2:
    // they are new. 3: the plan's grid is the kernel's. 4: the operands, of which the weights are addresses, are borrowed.
    unsafe { device.launch(NAME, kernel, plan.forward.grid, args)? };
    Ok(Forward { output, kept: Kept::All(kept) })
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
    let partials =
        Array::for_kernel(NAME, [plan.blocks, gradient_elements(arrays, &[])], DType::F32, device)?;
    let args = Args::new()
        .value(&weights(plan, arrays))
        .array(&arrays[0])
        .array(&kept[0])
        .array(&kept[1])
        .array(&kept[2])
        .array(grad)
        .optional(grad_x.as_ref())
        .array(&partials);
    let kernel = plan.backward.kernel_for(kept.iter().chain([grad]));
    // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous, as are the intermediates and the gradient,
    // which have the shape of the output; each block writes its sums of all parameters. 2: results are new. 3: the plan's grid is the
    // kernel's. 4: the operands, of which the weights are addresses, are borrowed.
    unsafe { device.launch(NAME, kernel, plan.backward.grid, args)? };
    gathered(device, arrays, grad_x, &partials, [])
}
