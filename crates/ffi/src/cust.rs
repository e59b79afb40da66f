//! The driver through the crate `cust`, and its objects as objects of this crate.

use crate::provider::process;
use crate::{Context, DeviceMemory, Driver, Provider, Result, Stream, sys};
use std::ffi::{CStr, c_void};

/// The functions that `cust` 0.3 declares and links (`-lcuda`), for programs that depend on `cust` already: the process then has one driver
/// and one set of symbols. Functions newer than that crate's declarations (CUDA 11) are looked up in the linked library.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cust;

impl Provider for Cust {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        macro_rules! declared {
            ($($function:ident),* $(,)?) => {
                match name.to_bytes() {
                    $(
                        text if text == stringify!($function).as_bytes() => {
                            Some(cust::sys::$function as *const c_void)
                        }
                    )*
                    _ => process::symbol(name),
                }
            };
        }
        declared!(
            cuInit,
            cuDriverGetVersion,
            cuDeviceGetCount,
            cuDeviceGet,
            cuDeviceGetName,
            cuDeviceTotalMem_v2,
            cuDeviceGetAttribute,
            cuDeviceGetPCIBusId,
            cuDeviceGetDefaultMemPool,
            cuDevicePrimaryCtxRetain,
            cuDevicePrimaryCtxRelease_v2,
            cuCtxSetCurrent,
            cuCtxGetCurrent,
            cuCtxGetDevice,
            cuCtxGetApiVersion,
            cuCtxSynchronize,
            cuStreamCreate,
            cuStreamCreateWithPriority,
            cuCtxGetStreamPriorityRange,
            cuDevicePrimaryCtxSetFlags_v2,
            cuStreamDestroy_v2,
            cuStreamSynchronize,
            cuStreamQuery,
            cuStreamWaitEvent,
            cuStreamBeginCapture_v2,
            cuStreamEndCapture,
            cuStreamIsCapturing,
            cuThreadExchangeStreamCaptureMode,
            cuEventCreate,
            cuEventDestroy_v2,
            cuEventRecord,
            cuEventSynchronize,
            cuEventQuery,
            cuEventElapsedTime,
            cuMemGetInfo_v2,
            cuMemAlloc_v2,
            cuMemFree_v2,
            cuMemAllocAsync,
            cuMemFreeAsync,
            cuMemPoolTrimTo,
            cuMemPoolSetAttribute,
            cuMemPoolGetAttribute,
            cuMemPoolSetAccess,
            cuMemHostAlloc,
            cuMemFreeHost,
            cuMemcpyHtoDAsync_v2,
            cuMemcpyDtoHAsync_v2,
            cuMemcpyDtoDAsync_v2,
            cuMemcpyPeerAsync,
            cuMemsetD8Async,
            cuMemsetD32Async,
            cuModuleLoadDataEx,
            cuModuleUnload,
            cuModuleGetFunction,
            cuFuncGetAttribute,
            cuFuncSetAttribute,
            cuOccupancyMaxActiveBlocksPerMultiprocessor,
            cuOccupancyMaxPotentialBlockSize,
            cuLaunchKernel,
            cuGraphInstantiateWithFlags,
            cuGraphLaunch,
            cuGraphUpload,
            cuGraphExecDestroy,
            cuGraphDestroy,
            cuGraphGetNodes,
            cuDeviceCanAccessPeer,
            cuCtxEnablePeerAccess,
            cuCtxDisablePeerAccess,
            cuProfilerStart,
            cuProfilerStop,
            cuGetErrorName,
            cuGetErrorString,
        )
    }

    fn describe(&self) -> String {
        "cust".to_owned()
    }
}

/// Borrows a context of `cust`, which keeps owning it.
///
/// # Safety
/// `driver` must be the one that `cust` is linked to ([`Driver::new`] of [`Cust`]); `context` must outlive the result and everything
/// created from it.
///
/// # Errors
/// From the driver.
pub unsafe fn context(driver: &Driver, context: &cust::context::Context) -> Result<Context> {
    // SAFETY: the caller vouches for the context.
    unsafe { Context::borrow(driver, sys::CUcontext(context.as_raw().cast())) }
}

/// Borrows a stream of `cust`, which keeps owning it.
///
/// # Safety
/// `stream` must belong to `context`, and must outlive the result and everything created from it.
pub unsafe fn stream(context: &Context, stream: &cust::stream::Stream) -> Stream {
    // SAFETY: the caller vouches for the stream.
    unsafe { Stream::borrow(context, sys::CUstream(stream.as_inner().cast())) }
}

/// A stream of `cust` that is kept until the result and everything created from it are gone.
///
/// # Safety
/// `stream` must belong to `context`.
pub unsafe fn shared(context: &Context, stream: std::sync::Arc<cust::stream::Stream>) -> Stream {
    let raw = sys::CUstream(stream.as_inner().cast());
    // SAFETY: the owner keeps the stream, which the caller says is the context's.
    unsafe { Stream::share(context, raw, stream) }
}

/// Borrows the memory of a buffer of `cust`, which keeps owning it.
///
/// # Safety
/// The buffer must belong to the stream's context. It must outlive the result and the work queued with it, and must not be written through
/// `cust` meanwhile.
pub unsafe fn memory<T: cust::memory::DeviceCopy>(
    stream: &Stream,
    buffer: &cust::memory::DeviceSlice<T>,
) -> DeviceMemory {
    // SAFETY: the caller vouches for the buffer.
    unsafe { DeviceMemory::borrow(stream, buffer.as_device_ptr().as_raw(), buffer.len() * size_of::<T>()) }
}
