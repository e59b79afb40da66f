//! The block on CUDA with 33 to 64 features (csrc/clifford/mv_wide.cuh): the first linear map and the gradient of its input are products of
//! matrices; one kernel for each pass does the rest, and two others the gradients of matrices.

use super::{
    Forward, Kept, MOST_FEATURES, NAME, Sizes,
    cuda::{Weights, gathered, gradient_elements},
};
use crate::{
    Array, Compute, CudaDevice, DType, Device, Result,
    array::rows::sum_partials,
    cuda::{Args, Grid, Kernel},
    ops::{
        clifford::mv_linear::{self, Bias, cuda as linear},
        pad,
    },
};
use gradewise_core::Algebra;

/// Most features.
const WIDTH: usize = 64;
/// Rows that a block of threads works on at a time.
const ROWS: usize = 16;
const THREADS: usize = 256;
const WARPS: usize = THREADS / 32;
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
    /// Numbers that an operand of products inside of the block consists of: two for the accuracy of `f32`, or one.
    numbers: usize,
    forward: (Kernel, Grid),
    backward: (Kernel, Grid),
    sums: Sums,
}

/// Kernels for gradients of matrices.
struct Sums {
    /// Of the first one, from 64 or 80 columns of rows.
    of_64: Kernel,
    of_80: Kernel,
    /// Of the others.
    inner: Kernel,
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
        ["mv_wide_exact_fwd", "mv_wide_exact_bwd", "mv_wide_exact_sums_64", "mv_wide_exact_sums_80"]
    } else {
        ["mv_wide_fwd", "mv_wide_bwd", "mv_wide_sums_64", "mv_wide_sums_80"]
    };
    let [forward, backward, of_64, of_80] = names.map(|name| Kernel::of(name, algebra.signature(), dtype));
    let inner = if is_exact { "mv_wide_exact_inner_sums" } else { "mv_wide_inner_sums" };
    let inner = Kernel::of(inner, algebra.signature(), DType::F32);
    let numbers = if is_exact { 2 } else { 1 };
    let (shared_forward, shared_backward) = shared(algebra, numbers);
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
        numbers,
        forward: (forward, grid.shared(shared_forward)),
        backward: (backward, grid.shared(shared_backward)),
        sums: Sums { of_64, of_80, inner },
    })
}

/// Bytes of shared memory of both passes, with operands of so many 16-bit numbers.
fn shared(algebra: &Algebra, numbers: usize) -> (usize, usize) {
    let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
    let matrices = numbers * grades * WIDTH * WIDTH;
    let parameters = (paths + 4 * grades + 3) * WIDTH;
    let rows = blades * ROWS * WIDTH;
    // One value of each row and warp; largest magnitudes by warp; scales of matrices.
    let (exchange, magnitudes, scales) = (ROWS * WARPS, WARPS, 4);
    let forward = matrices + parameters + 2 * rows + exchange + magnitudes + scales;
    // Sums of parameters' gradients (`Sums` in the kernel).
    let sums = (2 * ((paths + grades).div_ceil(8) + 3) + 2 * grades) * THREADS;
    // There is room for y if operands are one number.
    let arrays = if numbers == 1 { 3 } else { 2 };
    let backward = matrices + parameters + arrays * rows + 2 * exchange + 3 * magnitudes + scales + sums;
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

    /// An array as the backward pass keeps it for the gradients of `right` and `left`: by tile of rows, an operand of products in the order in
    /// which these kernels have it in shared memory.
    fn kept(&self, device: &CudaDevice, algebra: &Algebra) -> Result<Array> {
        // 16-bit numbers in an array of `f32`.
        let tile = algebra.blade_count() * ROWS * WIDTH * self.numbers / 2;
        Array::for_kernel(NAME, [self.sizes.batch.div_ceil(ROWS), tile], DType::F32, device)
    }

    /// The gradient of the first matrix `[grades, inputs, features]` in the dtype of the parameters: by grade, products of x and the gradient
    /// of y summed over rows.
    fn first_sums(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        x: &Array,
        grad_y: &Array,
        parameters: DType,
    ) -> Result<Array> {
        /// Rows of a stage, and stages in shared memory.
        const STEP: usize = 32;
        const STAGES: usize = 4;
        /// Columns of x in a block of threads that has more than `WIDTH`.
        const MORE: usize = 80;
        let Sizes { batch, inputs, features } = self.sizes;
        let grades = algebra.grade_count();
        let (kernel, columns) = if inputs.div_ceil(MORE) < inputs.div_ceil(WIDTH) {
            (self.sums.of_80, MORE)
        } else {
            (self.sums.of_64, WIDTH)
        };
        let (halves, across) = (halves(algebra), inputs.div_ceil(columns));
        let blocks = (self.multiprocessors / (across * halves)).clamp(1, batch.div_ceil(STEP));
        let partial = Array::for_kernel(NAME, [blocks, grades * inputs * features], DType::F32, device)?;
        // Rows are 16 bytes apart.
        let size = self.dtype.size();
        let shared = STAGES * STEP * ((columns * size + 16) + (WIDTH * size + 16));
        // Four warps for each 16 columns.
        let grid = Grid::new([blocks, across, halves], [(columns * 8) as u32, 1, 1]).shared(shared);
        let args = Args::new()
            .array(x)
            .array(grad_y)
            .array(&partial)
            .size(batch)
            .size(inputs)
            .size(linear::pitch(x))
            .size(features);
        device.launch(NAME, kernel, grid, args)?;
        sum_partials(device, NAME, &partial, [grades, inputs, features], parameters, 1.0)
    }

    /// The gradient of x. Its rows are as far apart as those of x: rows that begin at multiples of 16 bytes are written in less than half of the
    /// time.
    fn input_gradient(
        &self,
        device: &CudaDevice,
        algebra: &Algebra,
        arrays: &[Array],
        grad_y: &Array,
    ) -> Result<Array> {
        let Sizes { batch, inputs, features } = self.sizes;
        let (matrices, pitch) = (narrowed(self, &arrays[1])?, linear::pitch(&arrays[0]));
        let sizes = mv_linear::Sizes::grade_wise(batch, pitch, features);
        if pitch == inputs {
            return linear::input_gradient(device, algebra, &sizes, &matrices, grad_y);
        }
        let matrices = pad(&matrices, 1, 0, pitch)?;
        linear::input_gradient(device, algebra, &sizes, &matrices, grad_y)?.slice(2, 0..inputs)
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
        /// Threads, and stages in shared memory, each with a barrier of 8 bytes.
        const THREADS: u32 = 512;
        const STAGES: usize = 4;
        let (grades, features) = (algebra.grade_count(), self.sizes.features);
        let (tiles, halves) = (self.sizes.batch.div_ceil(ROWS), halves(algebra));
        let blocks = (self.multiprocessors / halves).clamp(1, tiles);
        let partial =
            Array::for_kernel(NAME, [blocks, 2 * grades * features * features], DType::F32, device)?;
        // A tile's blades of three arrays, in 16-bit numbers, and its scales.
        let stage = 3 * algebra.blade_count() / halves * ROWS * WIDTH * self.numbers * 2 + 128;
        let grid = Grid::new([blocks, 1, halves], [THREADS, 1, 1]).shared(STAGES * (stage + 8));
        let args = Args::new()
            .array(&kept.h)
            .array(&kept.grad_r)
            .array(&kept.grad_l)
            .array(&kept.inverses)
            .array(&partial)
            .size(tiles)
            .size(features);
        device.launch(NAME, self.sums.inner, grid, args)?;
        sum_partials(device, NAME, &partial, [2, grades, features, features], parameters, 1.0)
    }
}

/// Blocks of threads that share the grades in sums of gradients (csrc/clifford/mv_wide_halves.cuh).
fn halves(algebra: &Algebra) -> usize {
    if algebra.blade_count() > 4 { 2 } else { 1 }
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
        .array(&grad_y)
        .array(&inner.h)
        .array(&inner.grad_r)
        .array(&inner.grad_l)
        .array(&inner.inverses)
        .array(&partials);
    let (kernel, grid) = plan.backward;
    device.launch(NAME, kernel, grid, args)?;
    let parameters = arrays[1].dtype();
    let others = plan.inner_sums(device, algebra, &inner, parameters)?;
    // Its memory serves the gradient of x.
    drop(inner);
    let first = plan.first_sums(device, algebra, &arrays[0], &grad_y, parameters)?;
    let grad_x = need_x.then(|| plan.input_gradient(device, algebra, arrays, &grad_y)).transpose()?;
    let apart = [(LINEAR, first), (RIGHT, others.slice(0, 0..1)?), (LEFT, others.slice(0, 1..2)?)];
    gathered(device, arrays, grad_x, &partials, apart)
}
