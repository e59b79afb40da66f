//! The driver through the crate `cuda-sys`.

use super::process;
use crate::Provider;
use std::ffi::{CStr, c_void};

/// The functions that the crate `cuda-sys` 0.2 declares and links (`-lcuda -lcudart -lcublas`), for programs that depend on it already: the
/// process then has one driver and one set of symbols. Functions newer than that crate's declarations (CUDA 9) are looked up in the linked
/// library.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaSys;

impl Provider for CudaSys {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        macro_rules! declared {
            ($($function:ident),* $(,)?) => {
                match name.to_bytes() {
                    $(
                        text if text == stringify!($function).as_bytes() => {
                            Some(cuda_sys::cuda::$function as *const c_void)
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
            cuDevicePrimaryCtxRetain,
            cuCtxSetCurrent,
            cuCtxGetCurrent,
            cuCtxGetDevice,
            cuCtxGetApiVersion,
            cuCtxSynchronize,
            cuStreamCreate,
            cuStreamCreateWithPriority,
            cuCtxGetStreamPriorityRange,
            cuStreamDestroy_v2,
            cuStreamSynchronize,
            cuStreamQuery,
            cuStreamWaitEvent,
            cuEventCreate,
            cuEventDestroy_v2,
            cuEventRecord,
            cuEventSynchronize,
            cuEventQuery,
            cuEventElapsedTime,
            cuMemGetInfo_v2,
            cuMemAlloc_v2,
            cuMemFree_v2,
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
            cuOccupancyMaxActiveBlocksPerMultiprocessor,
            cuOccupancyMaxPotentialBlockSize,
            cuLaunchKernel,
            cuDeviceCanAccessPeer,
            cuCtxEnablePeerAccess,
            cuCtxDisablePeerAccess,
            cuGetErrorName,
            cuGetErrorString,
        )
    }

    fn describe(&self) -> String {
        "cuda-sys".to_owned()
    }
}
