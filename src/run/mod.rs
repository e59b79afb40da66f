//! What every run has: a device, a folder, a way to stop, and something to watch.

mod energy;
mod folder;
mod interrupt;
mod memory;
mod progress;

pub use energy::Energy;
pub use folder::RunFolder;
pub use interrupt::Interrupt;
pub use memory::Memory;
pub use progress::Progress;

use crate::{
    config::Runtime,
    error::{Error, Result},
};
use gradewise_kernels::{Compute, DType, Device};
use gradewise_nn::Placement;

/// Sets up the threads and finds the device and dtype to compute with.
///
/// # Errors
/// A device, dtype or arithmetic that this program does not have here.
pub fn placement(runtime: &Runtime) -> Result<Placement> {
    let device: Device = runtime.device.parse()?;
    let dtype: DType = runtime.dtype.parse()?;
    device.require(dtype, "runtime.dtype")?;
    if runtime.compute == "tf32" && device == Device::Cpu {
        return Err(Error::Usage(
            "compute tf32 is arithmetic of CUDA tensor cores and the device is cpu; choose --compute exact"
                .to_owned(),
        ));
    }
    runtime.compute.parse::<Compute>()?.set_default();
    if runtime.threads > 0 {
        // Fails if the pool exists already, which leaves a number of threads that results do not depend on.
        if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(runtime.threads).build_global() {
            tracing::warn!("runtime.threads has no effect: {error}");
        }
    }
    Ok(Placement::new(&device, dtype))
}
