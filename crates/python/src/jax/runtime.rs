//! The functions of XLA's runtime that a call may use.

use super::{Failure, ffi};
use std::{ffi::c_void, mem::size_of, ptr};

/// The runtime, during a call.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub(super) api: *const ffi::Api,
    pub(super) context: *mut ffi::Context,
}

// SAFETY: the runtime's functions may be called on any thread during the call, and nothing that holds a `Runtime` outlives it.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    fn api(&self) -> &ffi::Api {
        // SAFETY: checked by `Call::new` to be there and of our size; it lives as long as the process.
        unsafe { &*self.api }
    }

    /// Converts an error of the runtime.
    fn outcome(&self, error: *mut ffi::Error) -> Result<(), Failure> {
        if error.is_null() {
            return Ok(());
        }
        let extension = ptr::null_mut();
        let mut text = ffi::ErrorText {
            struct_size: size_of::<ffi::ErrorText>(),
            extension,
            error,
            message: ptr::null(),
        };
        // SAFETY: an error that the runtime has just made.
        unsafe { (self.api().error_message)(&raw mut text) };
        let message = if text.message.is_null() {
            "XLA failed".to_owned()
        } else {
            // SAFETY: text of the error, which lives until that is destroyed below.
            unsafe { std::ffi::CStr::from_ptr(text.message) }.to_string_lossy().into_owned()
        };
        let mut destroy = ffi::ErrorDestroy { struct_size: size_of::<ffi::ErrorDestroy>(), extension, error };
        // SAFETY: destroyed once.
        unsafe { (self.api().error_destroy)(&raw mut destroy) };
        Err(Failure { code: ffi::code::INTERNAL, message })
    }

    /// Allocates device memory.
    pub fn allocate(&self, size: usize, alignment: usize) -> Result<*mut c_void, Failure> {
        let mut asked = ffi::MemoryAllocate {
            struct_size: size_of::<ffi::MemoryAllocate>(),
            extension: ptr::null_mut(),
            context: self.context,
            size,
            alignment,
            data: ptr::null_mut(),
        };
        // SAFETY: the context is that of the call.
        self.outcome(unsafe { (self.api().memory_allocate)(&raw mut asked) })?;
        if asked.data.is_null() {
            let message = format!("XLA has no {size} bytes of device memory for a workspace");
            return Err(Failure { code: ffi::code::RESOURCE_EXHAUSTED, message });
        }
        Ok(asked.data)
    }

    /// Frees memory of [`allocate`](Self::allocate).
    pub fn free(&self, data: *mut c_void, size: usize) {
        let mut given = ffi::MemoryFree {
            struct_size: size_of::<ffi::MemoryFree>(),
            extension: ptr::null_mut(),
            context: self.context,
            size,
            data,
        };
        // SAFETY: as in `allocate`; freed once. XLA reuses the memory only for later work in its stream. An error cannot be reported.
        let _ = self.outcome(unsafe { (self.api().memory_free)(&raw mut given) });
    }

    /// The stream that the call's work goes to.
    pub fn stream(&self) -> Result<*mut c_void, Failure> {
        let mut asked = ffi::StreamGet {
            struct_size: size_of::<ffi::StreamGet>(),
            extension: ptr::null_mut(),
            context: self.context,
            stream: ptr::null_mut(),
        };
        // SAFETY: the context is that of the call.
        self.outcome(unsafe { (self.api().stream_get)(&raw mut asked) })?;
        Ok(asked.stream)
    }

    /// The number of the device.
    pub fn ordinal(&self) -> Result<usize, Failure> {
        if self.api().struct_size < size_of::<ffi::Api>() {
            let message = "this jaxlib does not tell handlers which device they are on; update it".to_owned();
            return Err(Failure { code: ffi::code::FAILED_PRECONDITION, message });
        }
        let mut asked = ffi::DeviceOrdinalGet {
            struct_size: size_of::<ffi::DeviceOrdinalGet>(),
            extension: ptr::null_mut(),
            context: self.context,
            ordinal: 0,
        };
        // SAFETY: the context is that of the call; the function is there, by the struct's size.
        self.outcome(unsafe { (self.api().device_ordinal_get)(&raw mut asked) })?;
        Ok(usize::try_from(asked.ordinal).unwrap_or(0))
    }
}
