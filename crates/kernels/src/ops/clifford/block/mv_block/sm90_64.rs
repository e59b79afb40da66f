//! The block on CUDA with 33 to 64 features (csrc/clifford/block/sm90_64.cuh): the first linear map is a product of matrices, one kernel for each pass
//! does the rest, and two others the gradients of matrices, and of the input.

use super::{
    Forward, Kept, MOST_FEATURES, NAME, Sizes,
    cuda::{gathered, gradient_elements},
};
use crate::{
    Array, Compute, CudaDevice, DType, Device, Result,
    array::rows::sum_partials,
    csrc::block_sm90::{self, FIRST_ROWS, MORE_COLUMNS, ROWS, WIDE},
    ops::clifford::{
        block::operands::Weights,
        linear::mv_linear::{self, Bias, cuda as linear},
    },
    runtime::cuda::{Args, Grid, Kernel, Launch},
};
use gradewise_core::Algebra;

/// Most inputs. With more, the first map takes most of the time, and nothing was measured.
const MOST_INPUTS: usize = 4 * WIDE;

/// How a block with many features runs, for sizes and a dtype.
pub(super) struct Plan {
    sizes: Sizes,
    /// Of the features and of the saved intermediates.
    dtype: DType,
    /// Whether the parameters are `f32`.
    is_wide: bool,
    /// Blocks of threads, each with partial sums of its own.
    blocks: usize,
    multiprocessors: usize,
    /// Numbers that an operand of products inside of the block consists of: two for the accuracy of `f32`, or one.
    numbers: usize,
    forward: (Kernel, Grid),
    backward: (Kernel, Grid),
    gradients: Gradients,
}

/// Kernels for gradients of the linear maps.
struct Gradients {
    /// Of the first one, 64 or 80 columns of its input at a time.
    of_64: (Kernel, Launch),
    of_80: (Kernel, Launch),
    /// Of the matrices of the others.
    inner: (Kernel, Launch),
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
    if batch == 0 || !(1..=MOST_INPUTS).contains(&inputs) || !serves(device, features, dtype) {
        return None;
    }
    let is_exact = dtype == DType::F32 && Compute::current() != Compute::Tf32;
    let names = if is_exact {
        [
            "block_sm90_64_f32x3_fwd",
            "block_sm90_64_f32x3_bwd",
            "block_sm90_64_f32x3_bwd_first_64",
            "block_sm90_64_f32x3_bwd_first_80",
        ]
    } else {
        ["block_sm90_64_fwd", "block_sm90_64_bwd", "block_sm90_64_bwd_first_64", "block_sm90_64_bwd_first_80"]
    };
    let launched = |name: &'static str, dtype: DType| {
        let kernel = Kernel::of(name, algebra.signature(), dtype);
        device.kernels().launch(&kernel).map(|launch| (kernel, launch))
    };
    let [forward, backward, of_64, of_80] = names.map(|name| launched(name, dtype));
    let (forward, backward, of_64, of_80) = (forward?, backward?, of_64?, of_80?);
    let inner = if is_exact { "block_sm90_64_f32x3_bwd_inner" } else { "block_sm90_64_bwd_inner" };
    let inner = launched(inner, DType::F32)?;
    let numbers = if is_exact { 2 } else { 1 };
    if [forward, backward, of_64, of_80, inner]
        .iter()
        .any(|(_, launch)| launch.shared > info.max_shared_memory)
    {
        return None;
    }
    let multiprocessors = info.multiprocessors.max(1) as usize;
    let blocks = batch.div_ceil(ROWS).min(multiprocessors);
    let grid = |(kernel, launch): (Kernel, Launch)| {
        (kernel, Grid::blocks(blocks, launch.threads).shared(launch.shared))
    };
    Some(Plan {
        sizes,
        dtype,
        is_wide,
        blocks,
        multiprocessors,
        numbers,
        forward: grid(forward),
        backward: grid(backward),
        gradients: Gradients { of_64, of_80, inner },
    })
}

/// Values of four bytes that `right`, `left` and the parameters of single features take in shared memory, with scales of the matrices.
fn prepared(algebra: &Algebra, numbers: usize) -> usize {
    block_sm90::prepared(algebra.paths().len(), algebra.grade_count(), numbers)
}

/// Whether blocks of so many features run like this on this device, if the number of their inputs is not too large.
pub(super) fn serves(device: &CudaDevice, features: usize, dtype: DType) -> bool {
    device.info().compute_capability == (9, 0)
        && (MOST_FEATURES + 1..=WIDE).contains(&features)
        && dtype != DType::F64
}

/// Whether x `[blades, batch, inputs]` is read as it lies although it is not contiguous: columns of wider rows of a GPU.
pub(super) fn reads(x: &Array) -> bool {
    matches!((x.dims(), x.strides()), (&[_, batch, inputs], &[plane, pitch, 1]) if pitch > inputs && plane == batch * pitch)
        && matches!(x.device(), Device::Cuda(_))
}

impl Plan {
    fn weights(&self, arrays: &[Array]) -> Weights {
        Weights::new(self.sizes, 0, self.is_wide, arrays[1..].iter().map(Some))
    }

    fn linear(&self) -> mv_linear::Sizes {
        let Sizes { batch, inputs, features } = self.sizes;
        mv_linear::Sizes::grade_wise(batch, inputs, features)
    }

    /// An array of features `[blades, batch, features]`.
    fn like_the_output(&self, device: &CudaDevice, algebra: &Algebra) -> Result<Array> {
        let Sizes { batch, features, .. } = self.sizes;
        Array::for_kernel(NAME, [algebra.blade_count(), batch, features], self.dtype, device)
    }

    /// An array as the backward pass keeps it for the gradients of `right` and `left`: by tile of rows, an operand of products in the order in
    /// which these kernels have it in shared memory.
    fn kept(&self, device: &CudaDevice, algebra: &Algebra) -> Result<Array> {
        // 16-bit numbers in an array of `f32`.
        let tile = algebra.blade_count() * ROWS * WIDE * self.numbers / 2;
        Array::for_kernel(NAME, [self.sizes.batch.div_ceil(ROWS), tile], DType::F32, device)
    }

    /// The block's output, and what the backward pass reads of the parameters.
    fn output(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        arrays: &[Array],
        y: &Array,
        residual: Option<&Array>,
    ) -> Result<[Array; 2]> {
        let output = self.like_the_output(device, algebra)?;
        let prepared = Array::for_kernel(NAME, [prepared(algebra, self.numbers)], DType::F32, device)?;
        let args = Args::new()
            .value(&self.weights(arrays))
            .array(y)
            .optional(residual)
            .array(&output)
            .array(&prepared);
        let (kernel, grid) = self.forward;
        // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous; y has the shape of the output, and
        // `prepared` room for what the kernel leaves of the parameters. 2: both results are new. 3: the grid has the threads and the shared
        // memory of the build's table of launches. 4: the operands, of which the weights are addresses, are borrowed.
        unsafe { device.launch(NAME, kernel, grid, args)? };
        Ok([output, prepared])
    }

    /// The gradient of the first matrix `[grades, inputs, features]` in the dtype of the parameters, by grade products of x and the gradient of y
    /// summed over rows; and that of x, if needed. Its rows are as far apart as those of x.
    fn first_gradients(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        arrays: &[Array],
        grad_y: &Array,
        need_x: bool,
    ) -> Result<(Array, Option<Array>)> {
        let Sizes { batch, inputs, features } = self.sizes;
        let (x, pitch) = (&arrays[0], linear::pitch(&arrays[0]));
        let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
        let ((kernel, launch), columns) = if inputs.div_ceil(MORE_COLUMNS) < inputs.div_ceil(WIDE) {
            (self.gradients.of_80, MORE_COLUMNS)
        } else {
            (self.gradients.of_64, WIDE)
        };
        let matrices = need_x.then(|| narrowed(self, &arrays[1])).transpose()?;
        let grad_x = need_x
            .then(|| Array::for_kernel(NAME, [blades, batch, pitch], self.dtype, device))
            .transpose()?;
        let (halves, across) = (block_sm90::halves(algebra.blade_count()), inputs.div_ceil(columns));
        let blocks = (self.multiprocessors / (across * halves)).clamp(1, batch.div_ceil(FIRST_ROWS));
        let partial = Array::for_kernel(NAME, [blocks, grades * inputs * features], DType::F32, device)?;
        let grid = Grid::new([blocks, across, halves], [launch.threads, 1, 1]).shared(launch.shared);
        let args = Args::new()
            .array(x)
            .array(grad_y)
            .optional(matrices.as_ref())
            .optional(grad_x.as_ref())
            .array(&partial)
            .size(batch)
            .size(inputs)
            .size(pitch)
            .size(features);
        // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous, x perhaps in wider rows, `pitch` apart,
        // as is its gradient; each block writes its sums. 2: results are new. 3: threads and shared memory are those of the table of
        // launches; columns along y, halves of the blades along z.
        unsafe { device.launch(NAME, kernel, grid, args)? };
        let shape = [grades, inputs, features];
        let sums = sum_partials(device, NAME, &partial, shape, arrays[1].dtype(), 1.0)?;
        let grad_x = match grad_x {
            Some(wider) if pitch > inputs => Some(wider.slice(2, 0..inputs)?),
            other => other,
        };
        Ok((sums, grad_x))
    }

    /// The gradients of `right` and `left`, `[2, grades, features, features]` in the dtype of the parameters: by grade, products of h and the
    /// gradients of r and l summed over rows.
    fn inner_sums(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        kept: &Inner,
        parameters: DType,
    ) -> Result<Array> {
        let (grades, features) = (algebra.grade_count(), self.sizes.features);
        let (tiles, halves) = (self.sizes.batch.div_ceil(ROWS), block_sm90::halves(algebra.blade_count()));
        let blocks = (self.multiprocessors / halves).clamp(1, tiles);
        let partial =
            Array::for_kernel(NAME, [blocks, 2 * grades * features * features], DType::F32, device)?;
        let (kernel, launch) = self.gradients.inner;
        let grid = Grid::new([blocks, 1, halves], [launch.threads, 1, 1]).shared(launch.shared);
        let args = Args::new()
            .array(&kept.h)
            .array(&kept.grad_r)
            .array(&kept.grad_l)
            .array(&kept.inverses)
            .array(&partial)
            .size(tiles)
            .size(features);
        // SAFETY: 1: `kept` has tiles of so many rows and features, which the backward kernel has written, and each block writes its sums.
        // 2: `partial` is new. 3: threads and shared memory are those of the table of launches; halves along z.
        unsafe { device.launch(NAME, kernel, grid, args)? };
        sum_partials(device, NAME, &partial, [2, grades, features, features], parameters, 1.0)
    }
}

/// What the backward pass keeps for the gradients of `right` and `left`.
struct Inner {
    h: Array,
    grad_r: Array,
    grad_l: Array,
    /// Inverses of their scales, `[tiles, 4]`.
    inverses: Array,
}

/// A parameter in the dtype of the features, in which products of matrices have both operands.
fn narrowed(plan: &Plan, parameter: &Array) -> Result<Array> {
    parameter.cast(plan.dtype)
}

/// `arrays` are the operands without the residual; all operands are contiguous, the residual included, or x one that this [`reads`].
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    plan: &Plan,
    arrays: &[Array],
    residual: Option<&Array>,
) -> Result<Forward> {
    let (matrices, bias) = (narrowed(plan, &arrays[1])?, narrowed(plan, &arrays[2])?);
    let bias = Some((&bias, Bias::Scalar));
    let y = linear::forward(device, algebra, &plan.linear(), &arrays[0], &matrices, bias)?;
    let [output, prepared] = plan.output(device, algebra, arrays, &y, residual)?;
    Ok(Forward { output, kept: Kept::First([y, prepared]) })
}

/// As [`forward`]. `kept` are the first map's result and what [`forward`] has left of the parameters.
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    plan: &Plan,
    arrays: &[Array],
    kept: &[Array; 2],
    grad: &Array,
    need_x: bool,
) -> Result<Vec<Option<Array>>> {
    /// Numbers of the operands that are matrices.
    const LINEAR: usize = 1;
    const RIGHT: usize = 5;
    const LEFT: usize = 8;
    let [y, prepared] = kept;
    // With another compute mode than in the forward pass, operands are different ones. The copy engine reads from multiples of 16 bytes.
    let fits = prepared.dtype() == DType::F32
        && prepared.device() == Device::Cuda(device.clone())
        && prepared.elements() == self::prepared(algebra, plan.numbers)
        && prepared.is_contiguous()
        && prepared.cuda_address().is_multiple_of(16);
    let other = (!fits).then(|| plan.output(device, algebra, arrays, y, None)).transpose()?;
    let prepared = other.as_ref().map_or(prepared, |[_, prepared]| prepared);
    let grad_y = plan.like_the_output(device, algebra)?;
    let kept = || plan.kept(device, algebra);
    let inner = Inner {
        h: kept()?,
        grad_r: kept()?,
        grad_l: kept()?,
        inverses: Array::for_kernel(NAME, [plan.sizes.batch.div_ceil(ROWS), 4], DType::F32, device)?,
    };
    let elements = gradient_elements(arrays, &[LINEAR, RIGHT, LEFT]);
    let partials = Array::for_kernel(NAME, [plan.blocks, elements], DType::F32, device)?;
    let args = Args::new()
        .value(&plan.weights(arrays))
        .array(y)
        .array(grad)
        .array(prepared)
        .array(&grad_y)
        .array(&inner.h)
        .array(&inner.grad_r)
        .array(&inner.grad_l)
        .array(&inner.inverses)
        .array(&partials);
    let (kernel, grid) = plan.backward;
    // SAFETY: 1: `check` compared all operands with the sizes of the plan; they are contiguous, as are y and the gradient, which have the
    // shape of the output; `prepared` is what the forward kernel leaves (`fits`), and `inner`, `grad_y` and `partials` have room for what
    // this one leaves. 2: results are new. 3: the grid has the threads and the shared memory of the table of launches. 4: the operands, of
    // which the weights are addresses, are borrowed.
    unsafe { device.launch(NAME, kernel, grid, args)? };
    let parameters = arrays[1].dtype();
    let others = plan.inner_sums(device, algebra, &inner, parameters)?;
    // Its memory serves the gradient of x.
    drop(inner);
    let (first, grad_x) = plan.first_gradients(device, algebra, arrays, &grad_y, need_x)?;
    let apart = [(LINEAR, first), (RIGHT, others.slice(0, 0..1)?), (LEFT, others.slice(0, 1..2)?)];
    gathered(device, arrays, grad_x, &partials, apart)
}
