//! The weighted product with gates and norm by kernels that read and write each row once (csrc/clifford/product/persistent.cuh, sm90_persistent.cuh,
//! four_lanes.cuh).

use super::{NAME, Operands, Product, ProductGradients, RightGradient, Wanted, hopper, quads};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    cuda::{
        Args, Grid, Kernel,
        image::{Code, build_info},
    },
    ops::clifford::contract::Planes,
};
use gradewise_core::Algebra;

/// How a kernel was compiled: adjacent features per thread, most threads per block, and blocks that fit on a multiprocessor.
#[derive(Clone, Copy)]
struct Compiled {
    width: usize,
    threads: usize,
    blocks: usize,
}

/// The pass that a kernel computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
    /// Backward with the gradient of y transposed.
    Turned,
}

/// A kernel that serves, and how it is launched.
pub(super) struct Launch {
    pub kernel: Kernel,
    pub grid: Grid,
    /// Blocks along the rows. They are persistent: each takes rows, or groups of rows, in turn.
    pub blocks: usize,
    /// Whether the gradient of y comes out transposed.
    pub turned: bool,
    /// Rows in flight.
    pub stages: usize,
    /// Threads along a row, for kernels whose block size does not state it.
    pub along: Option<usize>,
}

/// How a row is divided among threads, and rows among the threads of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shares {
    /// Blocks that share a row, as a cluster.
    pub slices: usize,
    /// Threads along a slice, a multiple of 32, and rows worked on at a time.
    pub along: usize,
    pub together: usize,
}

impl Shares {
    /// Divides rows of `features`, `width` adjacent ones per thread, among blocks of `threads`; `None` for rows that are too long. All
    /// slices but the last are full, and none is empty.
    pub fn new(features: usize, width: usize, threads: usize) -> Option<Self> {
        let needed = features.div_ceil(width);
        let slices = needed.div_ceil(threads);
        let along = needed.div_ceil(slices).next_multiple_of(32);
        let whole = slices <= MOST_SLICES && (slices - 1) * along * width < features;
        whole.then_some(Self { slices, along, together: threads / along })
    }
}

/// Features of a row that one block can have.
pub(super) fn widest(blades: usize) -> usize {
    let Compiled { width, threads, .. } = Compiled::of(blades, Pass::Forward);
    width * threads
}

/// Blades, rows and features of an operand whose rows these kernels copy: neither short nor no multiple of 16 bytes.
pub(super) fn sizes(x: &Array) -> Option<[usize; 3]> {
    let [blades, rows, features] = x.dims()[..] else { return None };
    let serves = features >= FEWEST_FEATURES && (features * x.dtype().size()).is_multiple_of(16) && rows > 0;
    serves.then_some([blades, rows, features])
}

/// Co-resident blocks along the rows, if `blocks` fit on a multiprocessor.
fn at_a_time(device: &CudaDevice, kernel: Kernel, grid: Grid, blocks: usize) -> Result<usize> {
    let slices = grid.0.cluster[1] as usize;
    let most = (device.info().multiprocessors as usize * blocks / slices).max(1);
    // Multiprocessors come in pairs, which suits clusters of two. Larger clusters may leave multiprocessors without work.
    if slices <= 2 { Ok(most) } else { Ok(device.clusters_at_a_time(NAME, kernel, grid)?.clamp(1, most)) }
}

/// Whether kernels may be launched in clusters. That needs machine code for a device that supports them: code that the driver compiles
/// from the PTX of an earlier one does not.
pub(super) fn has_clusters(device: &CudaDevice) -> bool {
    let info = device.info();
    info.cluster_launch && matches!(build_info().code_for(info.compute_capability), Some(Code::Machine(_)))
}

/// Fewest features for which the warps are busy enough.
const FEWEST_FEATURES: usize = 32;
/// Kernels that count rows in 32 bits, up to a few strides past the last, take fewer than this.
pub(super) const MOST_ROWS: usize = 1 << 30;
/// Most blocks of a cluster that every device with clusters runs.
const MOST_SLICES: usize = 8;
/// Most rows in flight (STAGES in the kernels).
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

/// The launch of a pass over operands `[blades, rows, features]` at these addresses; `None` where these kernels do not serve: rows that are
/// too short or too long, or not a multiple of 16 bytes.
fn launch(device: &CudaDevice, algebra: &Algebra, arrays: &[&Array], pass: Pass) -> Result<Option<Launch>> {
    let x = arrays[0];
    let Some([blades, rows, features]) = sizes(x) else { return Ok(None) };
    let size = x.dtype().size();
    let Compiled { width, threads, blocks } = Compiled::of(blades, pass);
    let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
        return Ok(None);
    };
    if slices > 1 && !has_clusters(device) {
        return Ok(None);
    }
    let info = device.info();
    let operands = if pass == Pass::Forward { 2 } else { 3 };
    let piece = blades * threads * width * size;
    let stage = operands * piece;
    let kept = match pass {
        Pass::Turned => GROUP * piece,
        Pass::Backward if blades > 16 => 2 * algebra.paths().len() * threads * width * 4,
        _ => 0,
    };
    let shared = (info.max_shared_memory + RESERVED_SHARED) / blocks;
    let Some(available) = shared.checked_sub(RESERVED_SHARED + FIXED_SHARED + kept) else { return Ok(None) };
    let stages = (available / stage).min(if pass == Pass::Turned { TURNED_STAGES } else { MOST_STAGES });
    let operation = match pass {
        Pass::Forward => "sgp_persistent_fwd",
        Pass::Backward => "sgp_persistent_bwd",
        Pass::Turned => "sgp_persistent_bwd_transposed",
    };
    let Some(kernel) = kernel(device, operation, algebra, x.dtype(), arrays).filter(|_| stages >= 2) else {
        return Ok(None);
    };
    let mut grid =
        Grid::new([1, slices, 1], [along as u32, together as u32, 1]).shared(stages * stage + kept);
    grid.0.cluster = [1, slices as u32, 1];
    // As many blocks as are co-resident: each keeps its weights from row to row.
    let most = at_a_time(device, kernel, grid, blocks)?;
    let turned = pass == Pass::Turned;
    let at_once = if turned { GROUP } else { together };
    let units = rows.div_ceil(at_once);
    if turned {
        // Writing rows transposed does not pay if groups divide unevenly among the blocks, nor with clusters.
        let uneven = 10 * units.div_ceil(most) * most * GROUP > 11 * rows;
        let whole = rows.is_multiple_of(GROUP) && GROUP.is_multiple_of(together);
        if uneven || !whole || slices > 1 || blades > 16 || x.dtype() != DType::F32 {
            return Ok(None);
        }
    }
    let blocks = units.min(most);
    grid.0.grid[0] = blocks as u32;
    Ok(Some(Launch { kernel, grid, blocks, turned, stages, along: None }))
}

impl Launch {
    /// Of a kernel of which one block fits on a multiprocessor, and takes `together` of `rows` at a time; `grid` as for one block.
    pub fn in_turn(
        device: &CudaDevice,
        kernel: Kernel,
        mut grid: Grid,
        (rows, together): (usize, usize),
        stages: usize,
    ) -> Result<Self> {
        grid.0.cluster = grid.0.grid;
        let blocks = rows.div_ceil(together).min(at_a_time(device, kernel, grid, 1)?);
        grid.0.grid[0] = blocks as u32;
        Ok(Self { kernel, grid, blocks, turned: false, stages, along: None })
    }

    /// `args` before the sizes that every kernel has.
    fn queue(&self, device: &CudaDevice, args: Args<'_>, rows: usize, features: usize) -> Result<()> {
        let args = args.size(rows).size(features).int(self.stages as i32);
        let args = match self.along {
            Some(along) => args.int(along as i32),
            None => args,
        };
        device.launch(NAME, self.kernel, self.grid, args)
    }
}

/// The kernel, if it was compiled for the algebra and the dtype and can take arrays at these addresses.
pub(super) fn kernel(
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
    operands: &Operands<'_>,
) -> Result<Option<Product>> {
    let Operands { x, y, w } = *operands;
    let arrays = [x, y, w];
    let mut found = quads::launch(device, algebra, &arrays, false)?;
    if found.is_none() {
        found = hopper::launch(device, algebra, &arrays, false)?;
    }
    if found.is_none() {
        found = launch(device, algebra, &arrays, Pass::Forward)?;
    }
    let Some(launch) = found else { return Ok(None) };
    let Planes { rows, features, .. } = Planes::of(NAME, x)?;
    let dtype = x.dtype();
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let inverse = Array::for_kernel(NAME, [algebra.grade_count(), rows], dtype.accumulator(), device)?;
    let args = Args::new().array(x).array(y).array(w).array(&out).array(&inverse);
    launch.queue(device, args, rows, features)?;
    Ok(Some(Product { output: out, inverse_rms: Some(inverse) }))
}

/// The requested gradients of x, y and w, and with w's that of a bias; `None` as for [`forward`]. Reads neither the output nor 1/rms: the
/// kernel recomputes both from the operands.
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    grad: &Array,
    wanted: Wanted,
) -> Result<Option<ProductGradients>> {
    let (Operands { x, y, w }, Wanted { needs, right }) = (*operands, wanted);
    let arrays = [x, y, w, grad];
    let turned = right == RightGradient::Transposed && needs.y;
    let mut found = if turned { launch(device, algebra, &arrays, Pass::Turned)? } else { None };
    if found.is_none() {
        found = quads::launch(device, algebra, &arrays, true)?;
    }
    if found.is_none() {
        found = hopper::launch(device, algebra, &arrays, true)?;
    }
    if found.is_none() {
        found = launch(device, algebra, &arrays, Pass::Backward)?;
    }
    let Some(launch) = found else { return Ok(None) };
    let dtype = x.dtype();
    let Planes { blades, rows, features } = Planes::of(NAME, x)?;
    let shape = [blades, rows, features];
    let shape_y = if launch.turned { [blades, features, rows] } else { shape };
    let new = |shape| Array::for_kernel(NAME, shape, dtype, device);
    let grad_x = needs.x.then(|| new(shape)).transpose()?;
    let grad_y = needs.y.then(|| new(shape_y)).transpose()?;
    // The gradient of the weights and, starting at a multiple of 4, that of the bias.
    let weights = w.elements();
    let count = weights.next_multiple_of(4) + features;
    let partials = needs
        .w
        .then(|| Array::for_kernel(NAME, [launch.blocks, count], dtype.accumulator(), device))
        .transpose()?;
    let args = Args::new()
        .array(x)
        .array(y)
        .array(w)
        .array(grad)
        .optional(grad_x.as_ref())
        .optional(grad_y.as_ref())
        .optional(partials.as_ref());
    launch.queue(device, args, rows, features)?;
    let grad_y = match grad_y {
        Some(transposed) if launch.turned => Some(transposed.transpose(1, 2)?),
        grad_y => grad_y,
    };
    let mut gradients = ProductGradients { x: grad_x, y: grad_y, ..ProductGradients::default() };
    if let Some(partials) = partials {
        let sums = sum_partials(device, NAME, &partials, [count], dtype, 1.0)?;
        gradients.w = Some(sums.slice(0, 0..weights)?.reshape(w.shape())?);
        gradients.bias = Some(sums.slice(0, count - features..count)?);
    }
    Ok(Some(gradients))
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn rows_are_dealt_out_whole() {
        let shares = |features, width, threads| {
            Shares::new(features, width, threads)
                .map(|Shares { slices, along, together }| [slices, along, together])
        };
        assert_eq!(shares(32, 2, 256), Some([1, 32, 8]));
        assert_eq!(shares(96, 2, 512), Some([1, 64, 8]));
        assert_eq!(shares(512, 2, 256), Some([1, 256, 1]));
        assert_eq!(shares(516, 2, 256), Some([2, 160, 1]));
        assert_eq!(shares(2072, 2, 512), Some([3, 352, 1]));
        assert_eq!(shares(4096, 2, 256), Some([8, 256, 1]));
        assert_eq!(shares(4104, 2, 256), None);
        for features in 1..5000 {
            for (width, threads) in [(2, 256), (2, 512), (1, 256), (1, 512), (1, 128)] {
                let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
                    continue;
                };
                assert!(along * together <= threads && together >= 1 && along % 32 == 0);
                assert!(slices == 1 || together == 1, "a cluster works on one row at a time");
                let before = (slices - 1) * along * width;
                assert!(
                    before < features && features <= before + along * width,
                    "{features}: the last is not empty"
                );
            }
        }
    }
}
