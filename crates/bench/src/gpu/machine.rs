//! The machine and the commit of a run.

use crate::{Machine, Result};
use gradewise_ffi::Nvml;
use gradewise_kernels::CudaDevice;
use std::process::Command;

/// The device and its driver.
///
/// # Errors
/// From the driver.
pub fn machine(device: &CudaDevice) -> Result<Machine> {
    let (info, driver) = (device.info(), device.context().driver());
    let (major, minor) = info.compute_capability;
    let (cuda_major, cuda_minor) = driver.version()?;
    Ok(Machine {
        device: info.name.clone(),
        compute_capability: format!("{major}.{minor}"),
        memory_bytes: info.memory as u64,
        // A container may have the driver, but not NVML.
        driver: Nvml::load().and_then(|nvml| nvml.driver_version()).ok(),
        cuda: format!("{cuda_major}.{cuda_minor}"),
    })
}

/// The commit of the working tree, with `-dirty` if it has changes: from `git describe` or, outside of the repository,
/// from the file `REVISION` that scripts/pack-gpu writes.
pub fn commit() -> Option<String> {
    let described =
        Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output().ok();
    let told = described.filter(|output| output.status.success()).map(|output| output.stdout);
    let told = told.or_else(|| std::fs::read("REVISION").ok())?;
    let text = String::from_utf8_lossy(&told).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
