//! The weighted product with gates and norm by kernels that read and write each row once (csrc/ops/sgp_rows.cuh).

use super::{NAME, ProductGradients, RightGradient};
use crate::{
    Array, CudaDevice, DType, Result,
    cuda::{
        Args, Grid, Kernel,
        image::{Code, build_info},
        rows::{accumulator, sum_partials},
    },
};
use gradewise_core::Algebra;

/// How a kernel was compiled: adjacent features per thread, most threads per block, and blocks that fit on a multiprocessor.
#[derive(Clone, Copy)]
struct Compiled {
    width: usize,
    threads: usize,
    blocks: usize,
}

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
    /// Backward with the gradient of y transposed.
    Turned,
}

/// How rows are dealt out to blocks.
struct Plan {
    /// Blocks along the rows, which they take in turn: one at a time, or a group.
    blocks: usize,
    /// Blocks that share a row, as a cluster.
    slices: usize,
    /// Threads along a row's slice, and rows worked on at a time.
    block: [u32; 3],
    /// Rows on their way at a time, and the shared memory that takes.
    stages: i32,
    shared: usize,
}

/// Fewest features for which the warps are busy enough.
const FEWEST_FEATURES: usize = 32;
/// Most blocks of a cluster that every device with clusters runs.
const MOST_SLICES: usize = 8;
/// Most rows on their way at a time (STAGES in the kernels).
const MOST_STAGES: usize = 4;
/// Rows that a block gathers before it writes them transposed (GROUP in the kernels), for which there are this many stages.
const GROUP: usize = 8;
const TURNED_STAGES: usize = 2;
/// Shared memory that the kernels take besides the stages, and what the device takes for each block.
const FIXED_SHARED: usize = 3 << 10;
const RESERVED_SHARED: usize = 1 << 10;

impl Compiled {
    fn of(blades: usize, pass: Pass) -> Self {
        let (width, threads, blocks) = match (blades, pass != Pass::Forward) {
            (..=8, false) => (2, 256, 2),
            (..=8, true) => (2, 256, 1),
            (..=16, false) => (1, 256, 2),
            (..=16, true) => (1, 256, 1),
            (_, false) => (1, 128, 3),
            (_, true) => (1, 128, 1),
        };
        Self { width, threads, blocks }
    }
}

impl Plan {
    /// `None` where these kernels do not serve: rows whose pieces are not copied as a whole, or that are too short or too
    /// long.
    fn new(device: &CudaDevice, algebra: &Algebra, x: &Array, pass: Pass) -> Option<Self> {
        let [blades, rows, features] = x.dims()[..] else { return None };
        let size = x.dtype().size();
        let Compiled { width, threads, blocks } = Compiled::of(blades, pass);
        if features < FEWEST_FEATURES || !(features * size).is_multiple_of(16) || rows == 0 {
            return None;
        }
        let needed = features.div_ceil(width);
        let slices = needed.div_ceil(threads);
        // Clusters take machine code for a device that has them: what the driver compiles from PTX of an earlier one knows none.
        let info = device.info();
        let clusters = info.cluster_launch
            && matches!(build_info().code_for(info.compute_capability), Some(Code::Machine(_)));
        if slices > MOST_SLICES || (slices > 1 && !clusters) {
            return None;
        }
        let along = needed.div_ceil(slices).next_multiple_of(32);
        // All slices but the last are whole, and none is empty.
        if (slices - 1) * along * width >= features {
            return None;
        }
        let together = (threads / along).max(1);
        let arrays = if pass == Pass::Forward { 2 } else { 3 };
        let piece = blades * threads * width * size;
        let stage = arrays * piece;
        let kept = match pass {
            Pass::Turned => GROUP * piece,
            Pass::Backward if blades > 16 => 2 * algebra.paths().len() * threads * width * 4,
            _ => 0,
        };
        let available = ((info.max_shared_memory + RESERVED_SHARED) / blocks)
            .checked_sub(RESERVED_SHARED + FIXED_SHARED + kept)?;
        let stages = (available / stage).min(if pass == Pass::Turned { TURNED_STAGES } else { MOST_STAGES });
        if stages < 2 {
            return None;
        }
        // As many blocks as run at a time: each takes its weights along from row to row.
        let most = (info.multiprocessors as usize * blocks / slices).max(1);
        let at_a_time = if pass == Pass::Turned { GROUP } else { together };
        let units = rows.div_ceil(at_a_time);
        // Groups that cannot be dealt out about evenly take longer than writing their rows transposed saves.
        let uneven = 10 * units.div_ceil(most) * most * GROUP > 11 * rows;
        let whole = rows.is_multiple_of(GROUP) && GROUP.is_multiple_of(together);
        if pass == Pass::Turned && (uneven || !whole || blades > 16 || x.dtype() != DType::F32) {
            return None;
        }
        Some(Self {
            blocks: units.min(most),
            slices,
            block: [along as u32, together as u32, 1],
            stages: stages as i32,
            shared: stages * stage + kept,
        })
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new([self.blocks, self.slices, 1], self.block).shared(self.shared);
        grid.0.cluster = [1, self.slices as u32, 1];
        grid
    }
}

/// The kernel, if it was compiled for the algebra and the dtype and can take arrays at these addresses.
fn kernel(
    device: &CudaDevice,
    operation: &'static str,
    algebra: &Algebra,
    dtype: DType,
    arrays: &[&Array],
) -> Option<Kernel> {
    let kernel = Kernel::of(operation, algebra.signature(), dtype);
    let aligned = arrays.iter().all(|array| array.cuda_address().is_multiple_of(16));
    (dtype != DType::F64 && aligned && device.kernels().has(device, &kernel)).then_some(kernel)
}

/// norm(gate(x)·gate(y)) and 1/rms; `None` where these kernels do not serve.
pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
) -> Result<Option<(Array, Array)>> {
    let dtype = x.dtype();
    let (Some(plan), Some(kernel)) = (
        Plan::new(device, algebra, x, Pass::Forward),
        kernel(device, "sgp_rows_fwd", algebra, dtype, &[x, y, w]),
    ) else {
        return Ok(None);
    };
    let [_, rows, features] = x.dims()[..] else { unreachable!("checked by the operator") };
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let inverse = Array::for_kernel(NAME, [algebra.grade_count(), rows], accumulator(dtype), device)?;
    let args = Args::new()
        .array(x)
        .array(y)
        .array(w)
        .array(&out)
        .array(&inverse)
        .size(rows)
        .size(features)
        .int(plan.stages);
    device.launch(NAME, kernel, plan.grid(), args)?;
    Ok(Some((out, inverse)))
}

/// Gradients of x, y and w as far as asked for, and with w's that of a bias; `None` as for [`forward`]. They take neither its output nor
/// 1/rms: both are formed again from the operands.
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    (x, y, w): (&Array, &Array, &Array),
    grad: &Array,
    (needs, right): ([bool; 3], RightGradient),
) -> Result<Option<ProductGradients>> {
    let dtype = x.dtype();
    let served = |pass, operation| {
        let plan = Plan::new(device, algebra, x, pass)?;
        let kernel = kernel(device, operation, algebra, dtype, &[x, y, w, grad])?;
        Some((pass, plan, kernel))
    };
    let wanted = right == RightGradient::Transposed && needs[1];
    let turned = if wanted { served(Pass::Turned, "sgp_rows_bwd_turned") } else { None };
    let Some((pass, plan, kernel)) = turned.or_else(|| served(Pass::Backward, "sgp_rows_bwd")) else {
        return Ok(None);
    };
    let [blades, rows, features] = x.dims()[..] else { unreachable!("checked by the operator") };
    let shape = [blades, rows, features];
    let shape_y = if pass == Pass::Turned { [blades, features, rows] } else { shape };
    let new = |shape| Array::for_kernel(NAME, shape, dtype, device);
    let grad_x = needs[0].then(|| new(shape)).transpose()?;
    let grad_y = needs[1].then(|| new(shape_y)).transpose()?;
    // The weights' and, from a multiple of 4 on, the bias's.
    let weights = w.elements();
    let count = weights.next_multiple_of(4) + features;
    let partials = needs[2]
        .then(|| Array::for_kernel(NAME, [plan.blocks, count], accumulator(dtype), device))
        .transpose()?;
    let args = Args::new()
        .array(x)
        .array(y)
        .array(w)
        .array(grad)
        .optional(grad_x.as_ref())
        .optional(grad_y.as_ref())
        .optional(partials.as_ref())
        .size(rows)
        .size(features)
        .int(plan.stages);
    device.launch(NAME, kernel, plan.grid(), args)?;
    let grad_y = match (pass, grad_y) {
        (Pass::Turned, Some(transposed)) => Some(transposed.transpose(1, 2)?),
        (_, grad_y) => grad_y,
    };
    let mut gradients = ProductGradients { x: grad_x, y: grad_y, ..ProductGradients::default() };
    if let Some(partials) = partials {
        let sums = sum_partials(device, NAME, &partials, [count], dtype, 1.0)?;
        gradients.weights = Some(sums.slice(0, 0..weights)?.reshape(w.shape())?);
        gradients.bias = Some(sums.slice(0, count - features..count)?);
    }
    Ok(Some(gradients))
}
