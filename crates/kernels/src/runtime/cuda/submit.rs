//! Queuing a kernel, once everything that it reads is queued.

use super::{
    CudaDevice,
    kernel::{Args, Grid},
};
use crate::{Device, Error, Result};
use gradewise_ffi::{Function, LaunchConfig};

/// Queues a kernel whose parameters are known to be of the sizes of the arguments.
///
/// # Safety
/// 1 to 5 of [`launch_function`](CudaDevice::launch_function), and no value of the arrays among the arguments waits to be computed.
pub(super) unsafe fn submit_function(
    device: &CudaDevice,
    operation: &'static str,
    function: &Function,
    grid: Grid,
    args: Args<'_>,
) -> Result<()> {
    if args.is_on_host {
        let (actual, expected) = (Device::Cpu, Device::Cuda(device.clone()));
        return Err(Error::DeviceMismatch { operation, argument: "kernel argument", actual, expected });
    }
    let _gate = device.gate().enter();
    if let Some(arena) = device.gate().arena() {
        arena.keep(function);
    }
    let describe = || {
        let LaunchConfig { grid, block, shared, .. } = grid.0;
        let of = |sizes: [u32; 3]| match sizes {
            [x, 1, 1] => x.to_string(),
            [x, y, z] => format!("({x}, {y}, {z})"),
        };
        let shared = if shared > 0 { format!(", {shared} bytes of shared memory") } else { String::new() };
        format!("{} <<<{}, {}>>>{shared}", function.name(), of(grid), of(block))
    };
    device.queue(operation, describe, || {
        // SAFETY: 1: number and sizes of the arguments were compared with the compiled kernel when it was resolved; the launcher knows its
        // types (1). 2: `args` borrows the arrays, and the launcher vouches for addresses (4); their memory is returned after this launch, in
        // the order of this same stream. 3 to 5: the launcher vouches (1, 2, 3 and 5).
        unsafe { function.launch(&grid.0, device.stream(), &args.all) }
    })
}
