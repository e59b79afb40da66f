//! Dispatch and launch of the kernels of csrc/clifford/product/sm90_persistent.cuh.

use super::{
    persistent,
    shares::{self, Launch, MOST_ROWS, Shares},
};
use crate::{Array, CudaDevice, DType, Result, runtime::cuda::Grid};
use gradewise_core::Algebra;

/// How a kernel was compiled: adjacent features per thread, and threads that compute.
#[derive(Clone, Copy)]
struct Compiled {
    width: usize,
    threads: usize,
}

/// Helper threads of a block: they load rows and sum over them.
const HELPING: usize = 128;
/// Most rows in flight (MOST_STAGES in the kernels).
const MOST_STAGES: usize = 4;
/// Upper bound of the shared memory that the kernels use besides the dynamic one.
const FIXED_SHARED: usize = 6 << 10;

impl Compiled {
    fn of(blades: usize, backward: bool) -> Option<Self> {
        let (width, threads) = match (blades, backward) {
            (..=8, false) => (2, 512),
            (..=8, true) => (2, 256),
            (..=16, false) => (1, 512),
            (..=16, true) => (1, 256),
            (_, false) => (1, 256),
            (_, true) => return None,
        };
        Some(Self { width, threads })
    }
}

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
    let Some(Compiled { width, threads }) = Compiled::of(blades, backward) else { return Ok(None) };
    let alone = x.dtype() == DType::F32 && !backward && features <= persistent::widest(blades);
    if !device.has_warpgroups() || alone {
        return Ok(None);
    }
    let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
        return Ok(None);
    };
    let operands = if backward { 3 } else { 2 };
    let stage = operands * blades * threads * width * size;
    let kept = if backward { blades * threads * width * size_of::<f32>() } else { 0 };
    let stages =
        (device.info().max_shared_memory.saturating_sub(FIXED_SHARED + kept) / stage).min(MOST_STAGES);
    let operation = if backward { "sgp_sm90_bwd" } else { "sgp_sm90_fwd" };
    let Some(kernel) = shares::kernel(device, operation, algebra, x.dtype(), arrays).filter(|_| stages >= 2)
    else {
        return Ok(None);
    };
    let block = [(threads + HELPING) as u32, 1, 1];
    let grid = Grid::new([1, slices, 1], block).shared(stages * stage + kept);
    let launch = Launch::in_turn(device, kernel, grid, (rows, together), stages)?;
    Ok(Some(Launch { along: Some(along), ..launch }))
}
