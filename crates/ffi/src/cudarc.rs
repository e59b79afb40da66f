//! Borrows objects of the crate `cudarc` as objects of this crate, and lends memory to `cudarc`.
//!
//! Both open the driver's library by its name, so there is one driver in the process, and both use a device's primary context. `cudarc`
//! needs to know at build time which CUDA version's functions to declare: enable one of its features, such as `cuda-12080`, in the program
//! that depends on it, or set the variable `CUDARC_CUDA_VERSION=12080`. The two exclude each other: with different versions `cudarc` declares
//! the functions of both and does not compile.

use crate::{Context, DeviceMemory, Driver, Result, Stream, sys};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

/// Borrows a context of `cudarc`, which keeps owning it.
///
/// # Safety
/// `context` must outlive the result and everything created from it.
///
/// # Errors
/// From the driver.
pub unsafe fn context(driver: &Driver, context: &CudaContext) -> Result<Context> {
    // SAFETY: the caller vouches for the context.
    unsafe { Context::borrow(driver, sys::CUcontext(context.cu_ctx().cast())) }
}

/// Borrows a stream of `cudarc`, which keeps owning it.
///
/// # Safety
/// `stream` must belong to `context`, and must outlive the result and everything created from it.
pub unsafe fn stream(context: &Context, stream: &CudaStream) -> Stream {
    // SAFETY: the caller vouches for the stream.
    unsafe { Stream::borrow(context, raw(stream)) }
}

/// A stream of `cudarc` that is kept, with its context, until the result and everything created from it are gone.
///
/// # Safety
/// `driver` must be the one that `cudarc` opens, which [`Driver::load`] gives.
///
/// # Errors
/// From the driver.
pub unsafe fn shared(driver: &Driver, stream: &Arc<CudaStream>) -> Result<Stream> {
    let (context, owner) = (stream.context().cu_ctx(), || Arc::clone(stream));
    // SAFETY: a stream of `cudarc` keeps its context, and the owner keeps the stream; both are the driver's.
    unsafe {
        let context = Context::share(driver, sys::CUcontext(context.cast()), owner())?;
        Ok(Stream::share(&context, raw(stream), owner()))
    }
}

/// The handle of a stream of `cudarc`, for `gradewise_kernels::CudaDevice::on_stream`.
pub fn raw(stream: &CudaStream) -> sys::CUstream {
    sys::CUstream(stream.cu_stream().cast())
}

/// The address and the size in bytes of a slice of `cudarc`, for `gradewise_kernels::Array::borrow`. `stream` waits for the work that
/// `cudarc` has queued for the slice in other streams.
pub fn address<T>(stream: &CudaStream, slice: &CudaSlice<T>) -> (sys::CUdeviceptr, usize) {
    let (address, _read) = slice.device_ptr(stream);
    (address, slice.num_bytes())
}

/// Borrows the memory of a slice of `cudarc`, which keeps owning it.
///
/// # Safety
/// `stream` must be `theirs`, made here by [`stream`]. The slice must outlive the result and the work queued with it, and must not be
/// written through `cudarc` meanwhile.
pub unsafe fn memory<T>(stream: &Stream, theirs: &CudaStream, slice: &CudaSlice<T>) -> DeviceMemory {
    let (address, bytes) = address(theirs, slice);
    // SAFETY: the caller vouches for the slice.
    unsafe { DeviceMemory::borrow(stream, address, bytes) }
}

/// Runs `work` on `memory`, lent to `cudarc` as a slice of as many elements as fit. Ownership stays with the caller.
///
/// # Safety
/// The memory must belong to the context of `stream` and hold values that are valid for `T`. Work queued for it in other streams must be
/// ordered with `stream`. The memory must live until the work that `work` queues is done.
pub unsafe fn with_slice<T, R>(
    stream: &Arc<CudaStream>,
    memory: &DeviceMemory,
    work: impl FnOnce(&mut CudaSlice<T>) -> R,
) -> R {
    /// Gives the memory back unfreed, also when `work` panics.
    struct Lent<T>(Option<CudaSlice<T>>);
    impl<T> Drop for Lent<T> {
        fn drop(&mut self) {
            self.0.take().map(CudaSlice::leak);
        }
    }
    let elements = memory.bytes() / size_of::<T>().max(1);
    // SAFETY: the caller vouches for the memory, which is never dropped as a slice.
    let slice = unsafe { stream.upgrade_device_ptr::<T>(memory.pointer(), elements) };
    let mut lent = Lent(None);
    work(lent.0.insert(slice))
}
