//! Device memory.

use crate::{Error, Result, Stream, sys::*};
use std::ffi::c_void;

/// Memory of a device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not in use by any process.
    pub free: usize,
    /// All of it.
    pub total: usize,
}

/// How a block was obtained, hence how it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordered,
    Immediate,
}

/// A block of device memory, owned. Returned to the device in the order of its stream when dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    stream: Stream,
    pointer: CUdeviceptr,
    bytes: usize,
    kind: Kind,
}

impl DeviceMemory {
    /// `bytes` bytes from the device's pool, usable by work queued in `stream` from now on. Contents are unspecified.
    ///
    /// # Errors
    /// `ERROR_OUT_OF_MEMORY`, from the driver.
    pub fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        stream.context().bind()?;
        let mut pointer = 0;
        // SAFETY: the pointer is valid for the write; the stream is alive. Zero bytes would be refused.
        unsafe { stream.context().driver().cuMemAllocAsync(&mut pointer, bytes.max(1), stream.raw())? };
        Ok(Self { stream: stream.clone(), pointer, bytes, kind: Kind::Ordered })
    }

    /// `bytes` bytes obtained at once, outside any stream's order and any capture.
    ///
    /// # Errors
    /// `ERROR_OUT_OF_MEMORY`, from the driver.
    pub fn immediate(stream: &Stream, bytes: usize) -> Result<Self> {
        let context = stream.context();
        context.bind()?;
        let mut mode = capture_mode::RELAXED;
        // SAFETY: the pointer is valid for reading and writing. In relaxed mode an allocation does not disturb a capture.
        unsafe { context.driver().cuThreadExchangeStreamCaptureMode(&mut mode)? };
        let mut pointer = 0;
        // SAFETY: the pointer is valid for the write; the context is bound.
        let result = unsafe { context.driver().cuMemAlloc_v2(&mut pointer, bytes.max(1)) };
        // SAFETY: as above; restores the mode.
        unsafe { context.driver().cuThreadExchangeStreamCaptureMode(&mut mode)? };
        result?;
        Ok(Self { stream: stream.clone(), pointer, bytes, kind: Kind::Immediate })
    }

    /// The address.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stream in whose order the block is returned.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues a copy from the host to `offset`. The host memory is read before the call returns.
    ///
    /// # Errors
    /// From the driver; [`Error::Range`] if the copy would end past the block.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<()> {
        self.require(offset, source.len(), "write")?;
        if source.is_empty() {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: the range is inside the block; pageable host memory is staged before the call returns.
        unsafe {
            self.stream.context().driver().cuMemcpyHtoDAsync_v2(
                self.pointer + offset as u64,
                source.as_ptr().cast::<c_void>(),
                source.len(),
                self.stream.raw(),
            )
        }
    }

    /// Copies from `offset` to the host, and waits for it and everything queued before.
    ///
    /// # Errors
    /// From the driver, errors of earlier work included; [`Error::Range`] if the copy would end
    /// past the block.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        self.require(offset, target.len(), "read")?;
        if target.is_empty() {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: the range is inside the block; `target` outlives the copy, which the synchronisation waits for.
        unsafe {
            self.stream.context().driver().cuMemcpyDtoHAsync_v2(
                target.as_mut_ptr().cast::<c_void>(),
                self.pointer + offset as u64,
                target.len(),
                self.stream.raw(),
            )?;
        }
        self.stream.synchronize()
    }

    /// Queues filling the whole block with one byte.
    ///
    /// # Errors
    /// From the driver.
    pub fn fill(&self, byte: u8) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: the range is the block.
        unsafe {
            self.stream.context().driver().cuMemsetD8Async(self.pointer, byte, self.bytes, self.stream.raw())
        }
    }

    /// Queues a copy of `bytes` bytes between blocks of one device, in the order of this block's stream.
    ///
    /// # Errors
    /// From the driver; [`Error::Range`] if the copy would end past either block.
    pub fn copy_from(&self, offset: usize, source: &Self, source_offset: usize, bytes: usize) -> Result<()> {
        self.require(offset, bytes, "copy")?;
        source.require(source_offset, bytes, "copy")?;
        if bytes == 0 {
            return Ok(());
        }
        self.stream.context().bind()?;
        // SAFETY: both ranges are inside their blocks.
        unsafe {
            self.stream.context().driver().cuMemcpyDtoDAsync_v2(
                self.pointer + offset as u64,
                source.pointer + source_offset as u64,
                bytes,
                self.stream.raw(),
            )
        }
    }

    fn require(&self, offset: usize, bytes: usize, operation: &'static str) -> Result<()> {
        let end = offset.saturating_add(bytes);
        if end <= self.bytes {
            return Ok(());
        }
        Err(Error::Range { operation, end: end as u64, bytes: self.bytes as u64 })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let context = self.stream.context();
        let release = || match self.kind {
            // SAFETY: allocated in `new` from a pool, returned once, after all work queued in its stream.
            Kind::Ordered => unsafe { context.driver().cuMemFreeAsync(self.pointer, self.stream.raw()) },
            // SAFETY: allocated in `immediate`, returned once; the driver waits for work that uses it.
            Kind::Immediate => unsafe { context.driver().cuMemFree_v2(self.pointer) },
        };
        context.park(context.bind().and_then(|()| release()));
    }
}
