//! What a device is and can do.

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
    /// Shared memory of a block in bytes, when asked for, at most.
    pub max_shared_memory: usize,
    /// Threads per multiprocessor, at most.
    pub max_threads_per_multiprocessor: u32,
    /// L2 cache in bytes.
    pub l2_cache: usize,
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
        let mut name = [0 as c_char; 256];
        // SAFETY: the buffer has the length given; the driver terminates the string within it.
        unsafe { driver.cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device)? };
        // SAFETY: as just said.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
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

fn attribute_of(driver: &Driver, device: CUdevice, which: c_int) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the pointer is valid for the write; an unknown attribute is an error of the call.
    unsafe { driver.cuDeviceGetAttribute(&mut value, which, device)? };
    Ok(value)
}
