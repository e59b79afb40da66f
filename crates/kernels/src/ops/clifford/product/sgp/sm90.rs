//! Dispatch and launch of the kernels of csrc/clifford/product/sm90_persistent.cuh.

use super::{
    persistent,
    shares::{self, Launch, MOST_ROWS, Shares},
};
use crate::{Array, CudaDevice, DType, Result, csrc::product_sm90 as csrc, runtime::cuda::Grid};
use gradewise_core::Algebra;

/// The launch for operands `[blades, rows, features]` at these addresses; `None` where other kernels serve or are faster. In the forward
/// pass in f32, those of clifford/product/persistent.cuh reach the memory's bandwidth where a block has whole rows.
pub(super) fn launch(
    device: &CudaDevice,
    algebra: &Algebra,
    arrays: &[&Array],
    backward: bool,
) -> Result<Option<Launch>> {
    let x = arrays[0];
    let Some([blades, rows @ ..MOST_ROWS, features]) = shares::sizes(x) else { return Ok(None) };
    let size = x.dtype().size();
    // The gradients of 32 blades need more registers than a thread can have.
    if backward && blades > 16 {
        return Ok(None);
    }
    let of_backward = usize::from(backward);
    let (width, threads) = (csrc::width(blades), csrc::threads(blades, of_backward));
    let alone = x.dtype() == DType::F32 && !backward && features <= persistent::widest(blades);
    if !device.has_warpgroups() || alone {
        return Ok(None);
    }
    let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
        return Ok(None);
    };
    let operands = if backward { 3 } else { 2 };
    let stage = operands * csrc::row(blades, of_backward) * size;
    let kept = csrc::kept(blades, of_backward);
    let available = device.info().max_shared_memory.saturating_sub(csrc::STATIC + kept);
    let stages = (available / stage).min(csrc::MOST_STAGES);
    let operation = if backward { "sgp_sm90_bwd" } else { "sgp_sm90_fwd" };
    let Some(kernel) = shares::kernel(device, operation, algebra, x.dtype(), arrays).filter(|_| stages >= 2)
    else {
        return Ok(None);
    };
    let block = [(threads + csrc::HELPING) as u32, 1, 1];
    let grid = Grid::new([1, slices, 1], block).shared(stages * stage + kept);
    let launch = Launch::in_turn(device, kernel, grid, (rows, together), stages)?;
    Ok(Some(Launch { along: Some(along), ..launch }))
}
