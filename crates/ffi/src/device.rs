//! Device properties.

use crate::{Driver, Result, sys::device_attribute as attribute, sys::*};
use std::ffi::{CStr, c_char, c_int};

/// The properties of a device that this project uses; others through [`DeviceInfo::attribute`].
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    driver: Driver,
    /// The driver's handle.
    pub device: CUdevice,
    /// Its number.
    pub ordinal: usize,
    /// The vendor's name.
    pub name: String,
    /// Memory in bytes.
    pub memory: usize,
    /// Compute capability: major, minor.
    pub compute_capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Threads per block, at most.
    pub max_threads_per_block: u32,
    /// Size of a block along x, y, z, at most.
    pub max_block: [u32; 3],
    /// Size of a grid along x, y, z, at most.
    pub max_grid: [u32; 3],
    /// Maximum shared memory of a block in bytes, with opt-in.
    pub max_shared_memory: usize,
    /// Threads per multiprocessor, at most.
    pub max_threads_per_multiprocessor: u32,
    /// L2 cache in bytes.
    pub l2_cache: usize,
    /// Whether blocks can be launched in clusters.
    pub cluster_launch: bool,
    /// The PCI bus id, such as `0000:3b:00.0`, by which NVML identifies the device.
    pub pci_bus_id: String,
}

impl DeviceInfo {
    /// The properties of device `ordinal`.
    ///
    /// # Errors
    /// From the driver; `ERROR_INVALID_DEVICE` if there is no such device.
    pub fn new(driver: &Driver, ordinal: usize) -> Result<Self> {
        let mut device = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the pointer is valid for the write.
        unsafe { driver.cuDeviceGet(&mut device, number)? };
        // SAFETY: the buffer has the length given; the driver terminates the string within it.
        let name = text(|buffer, length| unsafe { driver.cuDeviceGetName(buffer, length, device) })?;
        // SAFETY: as above.
        let pci_bus_id =
            text(|buffer, length| unsafe { driver.cuDeviceGetPCIBusId(buffer, length, device) })?;
        let mut memory = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { driver.cuDeviceTotalMem_v2(&mut memory, device)? };
        let get = |which: c_int| attribute_of(driver, device, which).map(|value| value.max(0) as u32);
        let three = |first: c_int| Ok::<_, crate::Error>([get(first)?, get(first + 1)?, get(first + 2)?]);
        Ok(Self {
            device,
            ordinal,
            name,
            memory,
            compute_capability: (
                get(attribute::COMPUTE_CAPABILITY_MAJOR)?,
                get(attribute::COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(attribute::MULTIPROCESSOR_COUNT)?,
            max_threads_per_block: get(attribute::MAX_THREADS_PER_BLOCK)?,
            max_block: three(attribute::MAX_BLOCK_DIM_X)?,
            max_grid: three(attribute::MAX_GRID_DIM_X)?,
            max_shared_memory: get(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            max_threads_per_multiprocessor: get(attribute::MAX_THREADS_PER_MULTIPROCESSOR)?,
            l2_cache: get(attribute::L2_CACHE_SIZE)? as usize,
            // Drivers before CUDA 11.8 know neither the attribute nor the devices that support clusters.
            cluster_launch: get(attribute::CLUSTER_LAUNCH).unwrap_or(0) != 0,
            pci_bus_id,
            driver: driver.clone(),
        })
    }

    /// Any attribute of [`sys::device_attribute`](crate::sys::device_attribute).
    ///
    /// # Errors
    /// From the driver.
    pub fn attribute(&self, which: c_int) -> Result<i32> {
        attribute_of(&self.driver, self.device, which)
    }
}

/// A string that the driver writes into a buffer of some length.
fn text(write: impl FnOnce(*mut c_char, c_int) -> Result<()>) -> Result<String> {
    let mut buffer = [0u8; 256];
    write(buffer.as_mut_ptr().cast::<c_char>(), buffer.len() as c_int)?;
    Ok(CStr::from_bytes_until_nul(&buffer).unwrap_or_default().to_string_lossy().into_owned())
}

fn attribute_of(driver: &Driver, device: CUdevice, which: c_int) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the pointer is valid for the write; an unknown attribute is an error of the call.
    unsafe { driver.cuDeviceGetAttribute(&mut value, which, device)? };
    Ok(value)
}
