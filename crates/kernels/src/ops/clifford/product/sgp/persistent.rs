//! The weighted product with gates and norm by kernels that read and write each row once (csrc/clifford/product/persistent.cuh).

use super::shares::{Launch, Shares, at_a_time, has_clusters, kernel, sizes};
use crate::{
    Array, CudaDevice, DType, Result,
    csrc::product_persistent::{self as csrc, GROUP, MOST_STAGES, TRANSPOSED_STAGES},
    runtime::cuda::Grid,
};
use gradewise_core::Algebra;

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
    csrc::width(blades) * csrc::threads(blades)
}

/// What the device takes of the shared memory for each block.
const RESERVED_SHARED: usize = 1 << 10;

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
    let (width, threads) = (csrc::width(blades), csrc::threads(blades));
    let resident = csrc::blocks(blades, (pass != Pass::Forward).into());
    let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
        return Ok(None);
    };
    if slices > 1 && !has_clusters(device) {
        return Ok(None);
    }
    let info = device.info();
    let operands = if pass == Pass::Forward { 2 } else { 3 };
    let stage = operands * csrc::row(blades) * size;
    let kept = match pass {
        Pass::Forward => 0,
        Pass::Backward => csrc::weights(blades, algebra.paths().len()),
        Pass::Turned => csrc::gathered(blades, size),
    };
    let shared = (info.max_shared_memory + RESERVED_SHARED) / resident;
    let Some(available) = shared.checked_sub(RESERVED_SHARED + csrc::STATIC + kept) else { return Ok(None) };
    let stages = (available / stage).min(if pass == Pass::Turned { TRANSPOSED_STAGES } else { MOST_STAGES });
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
    let most = at_a_time(device, kernel, grid, resident)?;
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
