//! The weighted product with gates and norm by kernels that read and write each row once (csrc/clifford/product/persistent.cuh).

use super::shares::{Launch, Shares, at_a_time, has_clusters, kernel, sizes};
use crate::{Array, CudaDevice, DType, Result, runtime::cuda::Grid};
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
pub(super) enum Pass {
    Forward,
    Backward,
    /// Backward with the gradient of y transposed.
    Turned,
}

/// Features of a row that one block can have.
pub(super) fn widest(blades: usize) -> usize {
    let Compiled { width, threads, .. } = Compiled::of(blades, Pass::Forward);
    width * threads
}

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
pub(super) fn launch(
    device: &CudaDevice,
    algebra: &Algebra,
    arrays: &[&Array],
    pass: Pass,
) -> Result<Option<Launch>> {
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
