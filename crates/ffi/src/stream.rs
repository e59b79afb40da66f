//! Streams: queues of work.

use crate::{Context, Result, context::Owner, sys::*};
use std::{any::Any, sync::Arc};

/// A queue of work on a device, done in order. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: CUstream,
    owned: bool,
    /// What keeps a shared stream alive.
    _owner: Owner,
}

impl Stream {
    /// A new stream that does not wait for the legacy default stream.
    ///
    /// # Errors
    /// From the driver.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind()?;
        let mut raw = CUstream::NULL;
        // SAFETY: the pointer is valid for the write; the context is bound; `Inner::drop` releases.
        unsafe { context.driver().cuStreamCreate(&mut raw, CU_STREAM_NON_BLOCKING)? };
        Ok(Self(Arc::new(Inner { context: context.clone(), raw, owned: true, _owner: Box::new(()) })))
    }

    /// A new stream with a priority: the device runs pending work of higher priority first. 0 is the default; lower numbers are higher
    /// priorities, down to [`best_priority`](Self::best_priority).
    ///
    /// # Errors
    /// From the driver. A priority outside the device's range is no error: it is clamped.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self> {
        context.bind()?;
        let mut raw = CUstream::NULL;
        // SAFETY: as in `new`.
        unsafe { context.driver().cuStreamCreateWithPriority(&mut raw, CU_STREAM_NON_BLOCKING, priority)? };
        Ok(Self(Arc::new(Inner { context: context.clone(), raw, owned: true, _owner: Box::new(()) })))
    }

    /// The device's highest priority, which is its lowest number; 0 if it has no priorities.
    ///
    /// # Errors
    /// From the driver.
    pub fn best_priority(context: &Context) -> Result<i32> {
        context.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are valid for the write; the context is bound.
        unsafe { context.driver().cuCtxGetStreamPriorityRange(&mut least, &mut greatest)? };
        Ok(greatest)
    }

    /// Borrows a stream that another library owns; dropping the result does not release it.
    ///
    /// # Safety
    /// `raw` must be a stream of the context, or null for its default stream, and must outlive the result and everything created from it.
    pub unsafe fn borrow(context: &Context, raw: CUstream) -> Self {
        // SAFETY: the caller vouches for the stream's life.
        unsafe { Self::share(context, raw, ()) }
    }

    /// As [`borrow`](Self::borrow), with an owner that is kept until the result and everything created from it are gone.
    ///
    /// # Safety
    /// `raw` must be a stream of the context, and live as long as `owner`.
    pub unsafe fn share(context: &Context, raw: CUstream, owner: impl Any + Send + Sync) -> Self {
        Self(Arc::new(Inner { context: context.clone(), raw, owned: false, _owner: Box::new(owner) }))
    }

    /// The stream's context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUstream {
        self.0.raw
    }

    /// Waits for the work queued so far.
    ///
    /// # Errors
    /// Asynchronous errors of the queued work, which surface here.
    pub fn synchronize(&self) -> Result<()> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().driver().cuStreamSynchronize(self.raw()) }
    }

    /// Starts a capture: work queued from now on is recorded, not run. `mode` is one of [`capture_mode`](crate::sys::capture_mode).
    ///
    /// # Errors
    /// From the driver.
    pub fn begin_capture(&self, mode: u32) -> Result<()> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().driver().cuStreamBeginCapture_v2(self.raw(), mode) }
    }

    /// Whether the stream is being captured.
    ///
    /// # Errors
    /// From the driver.
    pub fn is_capturing(&self) -> Result<bool> {
        Ok(self.capture_status()? != 0)
    }

    /// 0, or one of [`capture_status`](crate::sys::capture_status).
    pub(crate) fn capture_status(&self) -> Result<u32> {
        self.context().bind()?;
        let mut status = 0;
        // SAFETY: the pointer is valid for the write; the stream is alive.
        unsafe { self.context().driver().cuStreamIsCapturing(self.raw(), &mut status)? };
        Ok(status)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: created in `new`, released once; the driver finishes what is queued first.
        self.context.release(|driver| unsafe { driver.cuStreamDestroy_v2(self.raw) });
    }
}
