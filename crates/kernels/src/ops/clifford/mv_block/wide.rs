//! The block on CUDA with 33 to 64 features (csrc/clifford/mv_wide.cuh): the first linear map and the gradient of its input are products of
//! matrices; one kernel for each pass does the rest, and another the gradients of matrices.

use super::{
    Forward, Kept, MOST_FEATURES, NAME, Sizes,
    cuda::{Weights, gathered, gradient_elements},
};
use crate::{
    Array, Compute, CudaDevice, DType, Device, Result,
    array::rows::sum_partials,
    cuda::{Args, Grid, Kernel},
    ops::clifford::mv_linear::{self, Bias, cuda as linear},
};
use gradewise_core::Algebra;

/// Most features.
const WIDTH: usize = 64;
/// Rows that a block of threads works on at a time.
const ROWS: usize = 16;
const THREADS: usize = 256;
/// Most inputs. With more, the first map takes most of the time, and nothing was measured.
const MOST_INPUTS: usize = 4 * WIDTH;

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
    forward: (Kernel, Grid),
    backward: (Kernel, Grid),
    /// Gradients of one matrix from 64 or 80 columns of rows, and of two matrices from 64.
    sums: Sums,
}

struct Sums {
    one: Kernel,
    one_of_80: Kernel,
    two: Kernel,
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
    let names = if dtype == DType::F32 && Compute::current() != Compute::Tf32 {
        [
            "mv_wide_exact_fwd",
            "mv_wide_exact_bwd",
            "mv_wide_exact_sums1_64",
            "mv_wide_exact_sums1_80",
            "mv_wide_exact_sums2_64",
        ]
    } else {
        ["mv_wide_fwd", "mv_wide_bwd", "mv_wide_sums1_64", "mv_wide_sums1_80", "mv_wide_sums2_64"]
    };
    let [forward, backward, one, one_of_80, two] =
        names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    let (shared_forward, shared_backward) = shared(algebra);
    if shared_forward.max(shared_backward) > info.max_shared_memory || !device.kernels().has(device, &forward)
    {
        return None;
    }
    let multiprocessors = info.multiprocessors.max(1) as usize;
    let blocks = batch.div_ceil(ROWS).min(multiprocessors);
    let grid = Grid::blocks(blocks, THREADS as u32);
    Some(Plan {
        sizes,
        dtype,
        is_wide,
        blocks,
        multiprocessors,
        forward: (forward, grid.shared(shared_forward)),
        backward: (backward, grid.shared(shared_backward)),
        sums: Sums { one, one_of_80, two },
    })
}

/// Bytes of shared memory of both passes.
fn shared(algebra: &Algebra) -> (usize, usize) {
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let matrices = 2 * grades * WIDTH * WIDTH;
    let parameters = (paths + 4 * grades + 3) * WIDTH;
    let rows = blades * ROWS * WIDTH;
    let exchange = ROWS * WIDTH / 8;
    let forward = matrices + parameters + rows + exchange;
    // Sums of parameters' gradients (`Sums` in the kernel).
    let sums = 2 * ((paths + grades).div_ceil(8) + 3) * THREADS;
    let backward = matrices + parameters + 2 * rows + 2 * exchange + sums;
    (4 * forward, 4 * backward)
}

/// Whether blocks of so many features run like this on this device, if the number of their inputs is not too large.
pub(super) fn serves(device: &CudaDevice, features: usize, dtype: DType) -> bool {
    device.info().compute_capability == (9, 0)
        && (MOST_FEATURES + 1..=WIDTH).contains(&features)
        && dtype != DType::F64
}

/// Whether x `[blades, batch, inputs]` is read as it lies although it is not contiguous: columns of wider rows of a GPU.
pub(super) fn reads(x: &Array) -> bool {
    matches!((x.dims(), x.strides()), (&[_, batch, inputs], &[plane, pitch, 1]) if pitch > inputs && plane == batch * pitch)
        && matches!(x.device(), Device::Cuda(_))
}

impl Plan {
    fn weights(&self, arrays: &[Array]) -> Weights {
        Weights::new(self.sizes, 0, self.is_wide, arrays)
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

    /// The gradients of as many matrices `[count, grades, columns of a, features]` as there are arrays `others`, in the dtype of the
    /// parameters: by grade, products of `a` and each of them summed over rows.
    fn sums(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        a: &Array,
        others: &[&Array],
        parameters: DType,
    ) -> Result<Array> {
        /// Rows of a stage, and stages in shared memory.
        const STEP: usize = 32;
        const STAGES: usize = 4;
        /// Columns of `a` in a block of threads that has more than `WIDTH`.
        const MORE: usize = 80;
        let (count, grades) = (others.len(), algebra.grade_count());
        let (inputs, features) = (a.dims()[2], self.sizes.features);
        let (kernel, columns) = match count {
            1 if inputs.div_ceil(MORE) < inputs.div_ceil(WIDTH) => (self.sums.one_of_80, MORE),
            1 => (self.sums.one, WIDTH),
            _ => (self.sums.two, WIDTH),
        };
        let halves = if algebra.blade_count() > 4 { 2 } else { 1 };
        let across = inputs.div_ceil(columns);
        let blocks = (self.multiprocessors / (across * halves)).clamp(1, self.sizes.batch.div_ceil(STEP));
        let partial =
            Array::for_kernel(NAME, [blocks, count * grades * inputs * features], DType::F32, device)?;
        // Rows are 16 bytes apart.
        let size = self.dtype.size();
        let shared = STAGES * STEP * ((columns * size + 16) + count * (WIDTH * size + 16));
        // Four warps for each 16 columns.
        let grid = Grid::new([blocks, across, halves], [(columns * 8) as u32, 1, 1]).shared(shared);
        let args = Args::new()
            .array(a)
            .array(others[0])
            .array(others[count - 1])
            .array(&partial)
            .size(self.sizes.batch)
            .size(inputs)
            .size(linear::pitch(a))
            .size(features);
        device.launch(NAME, kernel, grid, args)?;
        sum_partials(device, NAME, &partial, [count, grades, inputs, features], parameters, 1.0)
    }
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
    let output = plan.like_the_output(device, algebra)?;
    let args = Args::new().value(&plan.weights(arrays)).array(&y).optional(residual).array(&output);
    let (kernel, grid) = plan.forward;
    device.launch(NAME, kernel, grid, args)?;
    Ok(Forward { output, kept: Kept::First(y) })
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    plan: &Plan,
    arrays: &[Array],
    y: &Array,
    grad: &Array,
    need_x: bool,
) -> Result<Vec<Option<Array>>> {
    /// Numbers of the operands that are matrices.
    const LINEAR: usize = 1;
    const RIGHT: usize = 5;
    const LEFT: usize = 8;
    let like = || plan.like_the_output(device, algebra);
    let (h, grad_r, grad_l, grad_y) = (like()?, like()?, like()?, like()?);
    let elements = gradient_elements(arrays, &[LINEAR, RIGHT, LEFT]);
    let partials = Array::for_kernel(NAME, [plan.blocks, elements], DType::F32, device)?;
    let args = Args::new()
        .value(&plan.weights(arrays))
        .array(y)
        .array(grad)
        .array(&h)
        .array(&grad_r)
        .array(&grad_l)
        .array(&grad_y)
        .array(&partials);
    let (kernel, grid) = plan.backward;
    device.launch(NAME, kernel, grid, args)?;
    let parameters = arrays[1].dtype();
    let inner = plan.sums(device, algebra, &h, &[&grad_r, &grad_l], parameters)?;
    // Their memory serves the gradient of x.
    drop((h, grad_r, grad_l));
    let first = plan.sums(device, algebra, &arrays[0], &[&grad_y], parameters)?;
    let grad_x = if need_x {
        let matrices = narrowed(plan, &arrays[1])?;
        let needs = mv_linear::Needs { x: true, w: false, bias: false };
        let (x, w, bias) = (&arrays[0], &matrices, Bias::Scalar);
        let call = linear::Backward { x, w, bias, grad: &grad_y, needs, add_to: None };
        linear::backward(device, algebra, &plan.linear(), call)?.x
    } else {
        None
    };
    let apart = [(LINEAR, first), (RIGHT, inner.slice(0, 0..1)?), (LEFT, inner.slice(0, 1..2)?)];
    gathered(device, arrays, grad_x, &partials, apart)
}
