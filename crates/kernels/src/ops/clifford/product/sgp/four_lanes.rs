//! Dispatch and launch of the kernels of csrc/clifford/product/four_lanes.cuh.

use super::shares::{self, Launch, MOST_ROWS, Shares};
use crate::{
    Array, CudaDevice, Result,
    csrc::product_four_lanes::{BLADES, LANES, LEAST_STAGES, MOST_SHARED, MOST_STAGES, ROW, STATIC, THREADS},
    runtime::cuda::Grid,
};
use gradewise_core::Algebra;
use std::ops::RangeInclusive;

/// Rows in flight.
const STAGES: RangeInclusive<usize> = LEAST_STAGES..=MOST_STAGES;
// Every dtype and both passes, in the fewest stages.
const _: () = assert!(STATIC + LEAST_STAGES * 3 * ROW * size_of::<f32>() <= MOST_SHARED);

/// The launch for operands `[blades, rows, features]` at these addresses; `None` where other kernels serve.
pub(super) fn launch(
    device: &CudaDevice,
    algebra: &Algebra,
    arrays: &[&Array],
    backward: bool,
) -> Result<Option<Launch>> {
    let x = arrays[0];
    let Some([BLADES, rows @ ..MOST_ROWS, features]) = shares::sizes(x) else { return Ok(None) };
    let Some(Shares { slices, along, together }) = Shares::new(LANES * features, 1, THREADS) else {
        return Ok(None);
    };
    if slices > 1 && !shares::has_clusters(device) {
        return Ok(None);
    }
    let operands = if backward { 3 } else { 2 };
    let stage = operands * ROW * x.dtype().size();
    let stages = (device.info().max_shared_memory.saturating_sub(STATIC) / stage).min(*STAGES.end());
    let operation = if backward { "sgp_four_lanes_bwd" } else { "sgp_four_lanes_fwd" };
    let Some(kernel) =
        shares::kernel(device, operation, algebra, x.dtype(), arrays).filter(|_| STAGES.contains(&stages))
    else {
        return Ok(None);
    };
    let grid = Grid::new([1, slices, 1], [along as u32, together as u32, 1]).shared(stages * stage);
    Launch::in_turn(device, kernel, grid, (rows, together), stages).map(Some)
}
