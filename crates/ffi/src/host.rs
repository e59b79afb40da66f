//! Page-locked host memory.

use crate::{Context, Result, context::Relaxed, sys::*};
use std::{ffi::c_void, ptr::NonNull, slice};

/// A block of page-locked host memory, owned: copies between it and a device run while the program goes on, and can be
/// captured. Scarce, since the system cannot swap it out.
#[derive(Debug)]
pub struct HostMemory {
    context: Context,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the block is plain memory, owned; shared references give no way to write to it.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `bytes` bytes of zeros.
    ///
    /// # Errors
    /// `ERROR_OUT_OF_MEMORY`, from the driver.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the write; the context is bound; `drop` releases. Zero bytes would be refused.
        unsafe { context.driver().cuMemHostAlloc(&mut pointer, bytes.max(1), CU_MEMHOSTALLOC_PORTABLE)? };
        let Some(pointer) = NonNull::new(pointer.cast::<u8>()) else {
            return Err(context.driver().error("cuMemHostAlloc", CUresult::ERROR_UNKNOWN));
        };
        // SAFETY: the block has at least that many bytes, and nothing else refers to it.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Self { context: context.clone(), pointer, bytes })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address; the driver aligns it to a page.
    pub fn pointer(&self) -> *mut c_void {
        self.pointer.as_ptr().cast()
    }

    /// The contents. No copy that writes to them may be in flight: the contract of the queued copy guarantees it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block has that many initialised bytes.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    /// The contents. No copy that reads or writes them may be in flight: the contract of the queued copy guarantees it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block has that many initialised bytes.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // The free does not affect a capture in progress in another stream, which cannot use a block that is dropped now.
        let relaxed = Relaxed::begin(&self.context);
        // SAFETY: allocated in `new`, released once.
        self.context.release(|driver| unsafe { driver.cuMemFreeHost(self.pointer()) });
        self.context.park(relaxed.and_then(Relaxed::end));
    }
}
