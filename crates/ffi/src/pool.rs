//! The memory pool of a device, from which [`DeviceMemory::new`](crate::DeviceMemory::new) takes.

use crate::{Context, Result, sys::*};
use std::ffi::{c_int, c_uint, c_void};

/// A device's default memory pool. All stream-ordered allocations on the device share it.
#[derive(Clone, Debug)]
pub struct Pool {
    context: Context,
    raw: CUmemoryPool,
}

impl Pool {
    /// The pool of the context's device.
    ///
    /// # Errors
    /// From the driver.
    pub fn new(context: &Context) -> Result<Self> {
        let mut raw = CUmemoryPool::NULL;
        // SAFETY: the pointer is valid for the write. The driver owns the pool.
        unsafe { context.driver().cuDeviceGetDefaultMemPool(&mut raw, context.info().device)? };
        Ok(Self { context: context.clone(), raw })
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUmemoryPool {
        self.raw
    }

    /// Bytes in live blocks.
    ///
    /// # Errors
    /// From the driver.
    pub fn used(&self) -> Result<u64> {
        self.get(pool_attribute::USED_MEM_CURRENT)
    }

    /// The most bytes in live blocks since [`reset_peaks`](Self::reset_peaks).
    ///
    /// # Errors
    /// From the driver.
    pub fn used_peak(&self) -> Result<u64> {
        self.get(pool_attribute::USED_MEM_HIGH)
    }

    /// Bytes obtained from the system, in use or not.
    ///
    /// # Errors
    /// From the driver.
    pub fn reserved(&self) -> Result<u64> {
        self.get(pool_attribute::RESERVED_MEM_CURRENT)
    }

    /// The most bytes obtained from the system since [`reset_peaks`](Self::reset_peaks).
    ///
    /// # Errors
    /// From the driver.
    pub fn reserved_peak(&self) -> Result<u64> {
        self.get(pool_attribute::RESERVED_MEM_HIGH)
    }

    /// Resets both peaks to the current values.
    ///
    /// # Errors
    /// From the driver.
    pub fn reset_peaks(&self) -> Result<()> {
        self.set(pool_attribute::USED_MEM_HIGH, 0)?;
        self.set(pool_attribute::RESERVED_MEM_HIGH, 0)
    }

    /// Sets the release threshold: how many bytes of unused memory the pool keeps at a synchronisation. The driver's default is 0, which
    /// returns everything to the system each time.
    ///
    /// # Errors
    /// From the driver.
    pub fn keep(&self, bytes: u64) -> Result<()> {
        self.set(pool_attribute::RELEASE_THRESHOLD, bytes)
    }

    /// Returns memory that is not in use to the system, down to `keep` bytes.
    ///
    /// # Errors
    /// From the driver.
    pub fn trim(&self, keep: usize) -> Result<()> {
        // SAFETY: the pool lives as long as the driver.
        unsafe { self.context.driver().cuMemPoolTrimTo(self.raw, keep) }
    }

    /// Allows the device `by` to read and write the pool's memory, or revokes that.
    pub(crate) fn set_access(&self, by: CUdevice, allowed: bool) -> Result<()> {
        const DEVICE: c_int = 1;
        const READ_WRITE: c_int = 3;
        let access =
            CUmemAccessDesc { location_type: DEVICE, id: by, flags: if allowed { READ_WRITE } else { 0 } };
        // SAFETY: the array has one element; the pool lives as long as the driver.
        unsafe { self.context.driver().cuMemPoolSetAccess(self.raw, &access, 1) }
    }

    fn get(&self, which: c_uint) -> Result<u64> {
        let mut value = 0u64;
        let target = (&raw mut value).cast::<c_void>();
        // SAFETY: all attributes used here are 64-bit numbers; the pool lives as long as the driver.
        unsafe { self.context.driver().cuMemPoolGetAttribute(self.raw, which, target)? };
        Ok(value)
    }

    fn set(&self, which: c_uint, mut value: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe {
            self.context.driver().cuMemPoolSetAttribute(self.raw, which, (&raw mut value).cast::<c_void>())
        }
    }
}
