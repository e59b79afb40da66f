//! Streams: queues of work.

use crate::{Context, Event, Graph, Result, sys::*};
use std::sync::Arc;

/// A queue of work on a device, done in order. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: CUstream,
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
        Ok(Self(Arc::new(Inner { context: context.clone(), raw })))
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
    /// Those of the work, which show only now.
    pub fn synchronize(&self) -> Result<()> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().driver().cuStreamSynchronize(self.raw()) }
    }

    /// Lets later work wait for `event`.
    ///
    /// # Errors
    /// From the driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: both are alive.
        unsafe { self.context().driver().cuStreamWaitEvent(self.raw(), event.raw(), 0) }
    }

    /// Records from now on what is queued instead of doing it. `mode` is one of
    /// [`capture_mode`](crate::sys::capture_mode).
    ///
    /// # Errors
    /// From the driver.
    pub fn begin_capture(&self, mode: u32) -> Result<()> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.context().driver().cuStreamBeginCapture_v2(self.raw(), mode) }
    }

    /// Ends the capture and returns what was recorded.
    ///
    /// # Errors
    /// If something queued meanwhile cannot be captured.
    pub fn end_capture(&self) -> Result<Graph> {
        self.context().bind()?;
        let mut graph = CUgraph::NULL;
        // SAFETY: the pointer is valid for the write; the stream is alive.
        unsafe { self.context().driver().cuStreamEndCapture(self.raw(), &mut graph)? };
        Ok(Graph::own(self.context(), graph))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: created in `new`, released once; the driver finishes what is queued first.
        let release = || unsafe { self.context.driver().cuStreamDestroy_v2(self.raw) };
        self.context.park(self.context.bind().and_then(|()| release()));
    }
}
