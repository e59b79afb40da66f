//! A device's primary context.

use crate::{DeviceInfo, Driver, Error, Result, sys::*};
use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Memory of a device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not in use by any process.
    pub free: usize,
    /// Total.
    pub total: usize,
}

/// A context of a device: the primary one, which all libraries of a process share, or a borrowed one. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    driver: Driver,
    info: DeviceInfo,
    raw: CUcontext,
    owned: bool,
    parked: Mutex<Option<Error>>,
    /// What keeps a shared context alive.
    _owner: Owner,
}

/// Keeps an object of another library alive.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

impl Context {
    /// Retains the primary context of device `ordinal`.
    ///
    /// # Errors
    /// From the driver; `ERROR_INVALID_DEVICE` if there is no such device.
    pub fn primary(driver: &Driver, ordinal: usize) -> Result<Self> {
        let info = DeviceInfo::new(driver, ordinal)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: the pointer is valid for the write; `Inner::drop` releases.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut raw, info.device)? };
        Ok(Self(Arc::new(Inner {
            driver: driver.clone(),
            info,
            raw,
            owned: true,
            parked: Mutex::new(None),
            _owner: Box::new(()),
        })))
    }

    /// Borrows a context that another library of the program owns; dropping the result does not release it.
    ///
    /// # Safety
    /// `raw` must be a context of this driver, and must outlive the result and everything created from it.
    ///
    /// # Errors
    /// From the driver.
    pub unsafe fn borrow(driver: &Driver, raw: CUcontext) -> Result<Self> {
        // SAFETY: the caller vouches for the context's life.
        unsafe { Self::share(driver, raw, ()) }
    }

    /// As [`borrow`](Self::borrow), with an owner that is kept until the result and everything created from it are gone.
    ///
    /// # Safety
    /// `raw` must be a context of this driver, and live as long as `owner`.
    ///
    /// # Errors
    /// From the driver.
    pub unsafe fn share(driver: &Driver, raw: CUcontext, owner: impl Any + Send + Sync) -> Result<Self> {
        let mut device = 0;
        // SAFETY: the caller says that the context is alive; the pointer is valid for the write.
        unsafe {
            driver.cuCtxSetCurrent(raw)?;
            driver.cuCtxGetDevice(&mut device)?;
        }
        let info = DeviceInfo::new(driver, device.max(0) as usize)?;
        Ok(Self(Arc::new(Inner {
            driver: driver.clone(),
            info,
            raw,
            owned: false,
            parked: Mutex::new(None),
            _owner: Box::new(owner),
        })))
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

    /// Binds the context to the calling thread; most driver calls need this.
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
    /// Asynchronous errors of the queued work, which surface here.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is bound.
        unsafe { self.driver().cuCtxSynchronize() }
    }

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// From the driver.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for the write; the context is bound.
        unsafe { self.driver().cuMemGetInfo_v2(&mut free, &mut total)? };
        Ok(MemoryInfo { free, total })
    }

    /// The API version that the context was made for, such as 3020; serves as a validity check of a borrowed context.
    ///
    /// # Errors
    /// From the driver, if the handle is not a context.
    pub fn api_version(&self) -> Result<u32> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the write; the context is alive.
        unsafe { self.driver().cuCtxGetApiVersion(self.0.raw, &mut version)? };
        Ok(version)
    }

    /// The first error that occurred where none could be returned (in a `Drop`) since the last call.
    pub fn take_parked(&self) -> Option<Error> {
        self.0.parked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Releases a resource of the context in a `Drop`. Attempts the release even if the context cannot be bound: the handle's owner is gone
    /// after this call, and most releases need no bound context.
    pub(crate) fn release(&self, release: impl FnOnce(&Driver) -> Result<()>) {
        self.park(self.bind());
        self.park(release(self.driver()));
    }

    /// Parks an error for [`take_parked`](Self::take_parked), unless one is parked already.
    pub(crate) fn park(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.parked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // A failure cannot be reported: no handle of the context is left.
        // SAFETY: retained in `primary`, released once.
        let _ = unsafe { self.driver.cuDevicePrimaryCtxRelease_v2(self.info.device) };
    }
}

/// A guard: while it lives, allocating and freeing on this thread does not invalidate a capture.
pub(crate) struct Relaxed<'a> {
    context: &'a Context,
    before: u32,
}

impl<'a> Relaxed<'a> {
    pub(crate) fn begin(context: &'a Context) -> Result<Self> {
        let mut before = capture_mode::RELAXED;
        // SAFETY: the pointer is valid for reading and writing.
        unsafe { context.driver().cuThreadExchangeStreamCaptureMode(&mut before)? };
        Ok(Self { context, before })
    }

    fn restore(&mut self) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.context.driver().cuThreadExchangeStreamCaptureMode(&mut self.before) }
    }

    pub(crate) fn end(self) -> Result<()> {
        std::mem::ManuallyDrop::new(self).restore()
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let result = self.restore();
        self.context.park(result);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({}: {})", self.info().ordinal, self.info().name)
    }
}
