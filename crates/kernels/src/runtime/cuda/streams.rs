//! Streams of other libraries in which operators run.

use gradewise_ffi::{Stream, sys::CUstream};
use std::{
    cell::RefCell,
    ptr,
    sync::{Mutex, PoisonError},
};

/// The streams of other libraries that a device's operators ran in. None is ever removed, so that a reference to one lives as long as the
/// device.
// Boxed: they stay in place while the list grows.
#[derive(Default)]
#[allow(clippy::vec_box)]
pub(super) struct Streams(Mutex<Vec<Box<Stream>>>);

thread_local! {
    /// What is in force on this thread, innermost last: the device's list, and the stream; null for the device's own.
    static SCOPES: RefCell<Vec<(*const Streams, *const Stream)>> = const { RefCell::new(Vec::new()) };
}

impl Streams {
    /// The stream of another library that is in force on this thread for this device.
    #[inline]
    pub fn current(&self) -> Option<&Stream> {
        let found = SCOPES.with_borrow(|scopes| {
            scopes.iter().rev().find(|(owner, _)| ptr::eq(*owner, self)).map(|(_, stream)| *stream)
        })?;
        // SAFETY: null, or a stream of this list, from which none is removed while `self` lives.
        unsafe { found.as_ref() }
    }

    /// Whether a stream of another library is in force on this thread for this device.
    pub fn is_elsewhere(&self) -> bool {
        self.current().is_some()
    }

    /// Adds a stream, made by `make`, unless it is there.
    pub fn add(&self, raw: CUstream, make: impl FnOnce() -> Stream) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.iter().all(|stream| stream.raw() != raw) {
            streams.push(Box::new(make()));
        }
    }

    /// Runs `work` with the stream `raw`, which was added, in force.
    pub fn scoped<R>(&self, raw: CUstream, work: impl FnOnce() -> R) -> R {
        let stream = {
            let streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            streams
                .iter()
                .find(|stream| stream.raw() == raw)
                .map_or(ptr::null(), |stream| ptr::from_ref(&**stream))
        };
        self.within(stream, work)
    }

    /// Runs `work` with the device's own stream in force.
    pub fn at_home<R>(&self, work: impl FnOnce() -> R) -> R {
        self.within(ptr::null(), work)
    }

    fn within<R>(&self, stream: *const Stream, work: impl FnOnce() -> R) -> R {
        /// Ends the scope, also when `work` panics.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                SCOPES.with_borrow_mut(Vec::pop);
            }
        }
        SCOPES.with_borrow_mut(|scopes| scopes.push((ptr::from_ref(self), stream)));
        let _end = End;
        work()
    }
}
