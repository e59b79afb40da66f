//! Events: marks in a stream.

use crate::{Context, Result, Stream, sys::*};

/// A mark in a stream, to wait for or to measure time between.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: CUevent,
}

impl Event {
    /// An event; `timing` makes it a time stamp too, at some cost.
    ///
    /// # Errors
    /// From the driver.
    pub fn new(context: &Context, timing: bool) -> Result<Self> {
        context.bind()?;
        let mut raw = CUevent::NULL;
        let flags = if timing { 0 } else { CU_EVENT_DISABLE_TIMING };
        // SAFETY: the pointer is valid for the write; the context is bound; `drop` releases.
        unsafe { context.driver().cuEventCreate(&mut raw, flags)? };
        Ok(Self { context: context.clone(), raw })
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUevent {
        self.raw
    }

    /// Marks what is queued in `stream` so far.
    ///
    /// # Errors
    /// From the driver.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive.
        unsafe { self.context.driver().cuEventRecord(self.raw, stream.raw()) }
    }

    /// Waits until the marked work is done.
    ///
    /// # Errors
    /// Asynchronous errors of the queued work, which surface here.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        unsafe { self.context.driver().cuEventSynchronize(self.raw) }
    }

    /// Whether the marked work is done; does not wait.
    ///
    /// # Errors
    /// Those of the work.
    pub fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        done(unsafe { self.context.driver().cuEventQuery(self.raw) })
    }

    /// Milliseconds from `start` to this event; both must have happened.
    ///
    /// # Errors
    /// If one has not, or was made without timing.
    pub fn milliseconds_since(&self, start: &Self) -> Result<f32> {
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is valid for the write; both events are alive.
        unsafe { self.context.driver().cuEventElapsedTime(&mut milliseconds, start.raw, self.raw)? };
        Ok(milliseconds)
    }
}

/// Converts a query's result: done, not ready, or an error.
pub(crate) fn done(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(CUresult::ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Stream {
    /// Whether all work queued so far is done; does not wait.
    ///
    /// # Errors
    /// Those of the work.
    pub fn is_done(&self) -> Result<bool> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        done(unsafe { self.context().driver().cuStreamQuery(self.raw()) })
    }

    /// Makes work queued later in this stream wait for `event`.
    ///
    /// # Errors
    /// From the driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: both are alive.
        unsafe { self.context().driver().cuStreamWaitEvent(self.raw(), event.raw(), 0) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`, released once; the driver waits for pending uses.
        self.context.release(|driver| unsafe { driver.cuEventDestroy_v2(self.raw) });
    }
}
