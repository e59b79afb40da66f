//! Device memory.

use crate::{Driver, Error, HostMemory, Result, Stream, context::Relaxed, sys::*};
use std::ffi::c_void;

/// How a block was obtained, hence how it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordered,
    Immediate,
    Borrowed,
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

    /// `bytes` bytes allocated synchronously, outside stream order and outside any capture.
    ///
    /// # Errors
    /// `ERROR_OUT_OF_MEMORY`, from the driver.
    pub fn immediate(stream: &Stream, bytes: usize) -> Result<Self> {
        let context = stream.context();
        context.bind()?;
        let relaxed = Relaxed::begin(context)?;
        let mut pointer = 0;
        // SAFETY: the pointer is valid for the write; the context is bound.
        unsafe { context.driver().cuMemAlloc_v2(&mut pointer, bytes.max(1))? };
        let block = Self { stream: stream.clone(), pointer, bytes, kind: Kind::Immediate };
        relaxed.end()?;
        Ok(block)
    }

    /// Borrows memory that another library owns; dropping the result does not free it.
    ///
    /// # Safety
    /// The `bytes` bytes at `pointer` must be device memory that the stream's context can access, and live as long as the
    /// result and the work queued with it.
    pub unsafe fn borrow(stream: &Stream, pointer: CUdeviceptr, bytes: usize) -> Self {
        Self { stream: stream.clone(), pointer, bytes, kind: Kind::Borrowed }
    }

    /// The number of the device that holds the memory at an address; `None` if the driver does not know the address, such as that of
    /// unregistered host memory.
    ///
    /// # Errors
    /// From the driver.
    pub fn device_of(driver: &Driver, pointer: CUdeviceptr) -> Result<Option<usize>> {
        let mut ordinal = -1i32;
        let target = (&raw mut ordinal).cast::<c_void>();
        // SAFETY: the attribute is an `i32`, to which `target` points; the driver takes any address.
        match unsafe { driver.cuPointerGetAttribute(target, pointer_attribute::DEVICE_ORDINAL, pointer) } {
            Ok(()) => Ok(usize::try_from(ordinal).ok()),
            Err(error) if error.code() == Some(CUresult::ERROR_INVALID_VALUE) => Ok(None),
            Err(error) => Err(error),
        }
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

    /// Copies from `offset` to the host, and waits for the copy and all work queued before it.
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

    /// Queues a copy from page-locked host memory to `offset`, and returns at once. Can be captured.
    ///
    /// # Safety
    /// `source` must neither be written to nor dropped before the copy is done.
    ///
    /// # Errors
    /// From the driver; [`Error::Range`] if the copy would end past the block.
    pub unsafe fn write_async(&self, offset: usize, source: &HostMemory) -> Result<()> {
        self.require(offset, source.bytes(), "write")?;
        self.stream.context().bind()?;
        // SAFETY: the range is inside the block; the caller keeps the source.
        unsafe {
            self.stream.context().driver().cuMemcpyHtoDAsync_v2(
                self.pointer + offset as u64,
                source.pointer().cast_const(),
                source.bytes(),
                self.stream.raw(),
            )
        }
    }

    /// Queues a copy from `offset` to page-locked host memory, and returns at once. Can be captured.
    ///
    /// # Safety
    /// `target` must not be accessed nor dropped before the copy is done.
    ///
    /// # Errors
    /// From the driver; [`Error::Range`] if the copy would end past the block.
    pub unsafe fn read_async(&self, offset: usize, target: &mut HostMemory) -> Result<()> {
        self.require(offset, target.bytes(), "read")?;
        self.stream.context().bind()?;
        // SAFETY: the range is inside the block; the caller keeps the target.
        unsafe {
            self.stream.context().driver().cuMemcpyDtoHAsync_v2(
                target.pointer(),
                self.pointer + offset as u64,
                target.bytes(),
                self.stream.raw(),
            )
        }
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

    pub(crate) fn require(&self, offset: usize, bytes: usize, operation: &'static str) -> Result<()> {
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
        match self.kind {
            Kind::Ordered => context.release(|driver| {
                // SAFETY: allocated in `new` from a pool, returned once, after all work queued in its stream.
                unsafe { driver.cuMemFreeAsync(self.pointer, self.stream.raw()) }
            }),
            Kind::Immediate => {
                // The free does not affect a capture in progress: recorded work runs later, so it cannot use a block that is dropped now.
                let relaxed = Relaxed::begin(context);
                context.release(|driver| {
                    // SAFETY: allocated in `immediate`, returned once; the driver waits for work that uses it.
                    unsafe { driver.cuMemFree_v2(self.pointer) }
                });
                context.park(relaxed.and_then(Relaxed::end));
            }
            Kind::Borrowed => {}
        }
    }
}
