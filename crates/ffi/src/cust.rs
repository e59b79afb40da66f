//! The driver through the crate `cust`, and its objects as objects of this crate.

use crate::provider::process;
use crate::{Context, DeviceMemory, Driver, Provider, Result, Stream, sys};
use std::ffi::{CStr, c_void};

/// The functions that `cust` 0.3 declares and links (`-lcuda`), for programs that use it anyway: one driver, one set of
/// symbols. What is newer than that crate (it declares CUDA 11) is taken from the library that it linked.
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

/// The context of `cust`; `cust` goes on owning it.
///
/// # Safety
/// `driver` must be the one that `cust` is linked to ([`Driver::new`] of [`Cust`]); `context` must live as long as what is
/// made of the result.
///
/// # Errors
/// From the driver.
pub unsafe fn context(driver: &Driver, context: &cust::context::Context) -> Result<Context> {
    // SAFETY: the caller vouches for the context.
    unsafe { Context::borrow(driver, sys::CUcontext(context.as_raw().cast())) }
}

/// A stream of `cust`; `cust` goes on owning it.
///
/// # Safety
/// `stream` must belong to `context`, and live as long as what is made of the result.
pub unsafe fn stream(context: &Context, stream: &cust::stream::Stream) -> Stream {
    // SAFETY: the caller vouches for the stream.
    unsafe { Stream::borrow(context, sys::CUstream(stream.as_inner().cast())) }
}

/// The memory of a buffer of `cust`; `cust` goes on owning it.
///
/// # Safety
/// The buffer must belong to the stream's context, and live as long as the result and the work queued with it; nobody may
/// write to it through `cust` meanwhile.
pub unsafe fn memory<T: cust::memory::DeviceCopy>(
    stream: &Stream,
    buffer: &cust::memory::DeviceSlice<T>,
) -> DeviceMemory {
    // SAFETY: the caller vouches for the buffer.
    unsafe { DeviceMemory::borrow(stream, buffer.as_device_ptr().as_raw(), buffer.len() * size_of::<T>()) }
}
