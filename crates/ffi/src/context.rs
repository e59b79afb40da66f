//! A device's primary context.

use crate::{DeviceInfo, Driver, Error, Result, sys::*};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Part in the primary context of a device, which all libraries of a process share. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    driver: Driver,
    info: DeviceInfo,
    raw: CUcontext,
    parked: Mutex<Option<Error>>,
}

impl Context {
    /// Takes part in the primary context of device `ordinal`.
    ///
    /// # Errors
    /// From the driver; `ERROR_INVALID_DEVICE` if there is no such device.
    pub fn primary(driver: &Driver, ordinal: usize) -> Result<Self> {
        let info = DeviceInfo::new(driver, ordinal)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: the pointer is valid for the write; `Inner::drop` releases.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut raw, info.device)? };
        Ok(Self(Arc::new(Inner { driver: driver.clone(), info, raw, parked: Mutex::new(None) })))
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The device's properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUcontext {
        self.0.raw
    }

    /// Makes this the calling thread's context, as most calls need.
    ///
    /// # Errors
    /// From the driver.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained while `self` lives.
        unsafe { self.driver().cuCtxSetCurrent(self.0.raw) }
    }

    /// Waits for all work in the context.
    ///
    /// # Errors
    /// Those of the work, which show only now.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is bound.
        unsafe { self.driver().cuCtxSynchronize() }
    }

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// From the driver.
    pub fn memory(&self) -> Result<crate::MemoryInfo> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for the write; the context is bound.
        unsafe { self.driver().cuMemGetInfo_v2(&mut free, &mut total)? };
        Ok(crate::MemoryInfo { free, total })
    }

    /// The first error that occurred where none could be returned (in a `Drop`) since the last call.
    pub fn take_parked(&self) -> Option<Error> {
        self.0.parked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps an error for [`take_parked`](Self::take_parked), unless one is kept already.
    pub(crate) fn park(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.parked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure.
        // SAFETY: retained in `primary`, released once.
        let _ = unsafe { self.driver.cuDevicePrimaryCtxRelease_v2(self.info.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({}: {})", self.info().ordinal, self.info().name)
    }
}
