//! The functions of the driver API, and the conversion of their result codes to errors.

use crate::{Error, Provider, Result, sys::*, table::table};
use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_float, c_int, c_uint, c_void},
};

/// The functions of the driver API as `unsafe` methods under their own names.
pub struct Calls {
    table: Table,
    provider: Box<dyn Provider>,
}

table! {
    impl Calls, struct Table, code CUresult;

    /// Initialises the driver.
    fn cuInit(flags: c_uint);
    /// The newest CUDA version the driver serves, as 1000·major + 10·minor.
    fn cuDriverGetVersion(version: *mut c_int);
    /// Number of devices.
    fn cuDeviceGetCount(count: *mut c_int);
    /// A device by its number.
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    /// A device's name.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    /// A device's memory in bytes.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    /// An attribute of a device.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    /// A device's place on the PCI bus.
    fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice);
    /// The memory pool of a device.
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    /// Retains a device's primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Releases a device's primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// Sets how threads wait for a device's primary context.
    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    /// Binds a context to this thread.
    fn cuCtxSetCurrent(context: CUcontext);
    /// The context bound to this thread.
    fn cuCtxGetCurrent(context: *mut CUcontext);
    /// The device of this thread's context.
    fn cuCtxGetDevice(device: *mut CUdevice);
    /// The API version that a context was made for.
    fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    /// Waits for everything in this thread's context.
    fn cuCtxSynchronize();
    /// Makes a stream.
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    /// Makes a stream with a priority; lower numbers go first.
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    /// The range of stream priorities.
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    /// Releases a stream.
    fn cuStreamDestroy_v2(stream: CUstream);
    /// Waits for a stream.
    fn cuStreamSynchronize(stream: CUstream);
    /// Whether a stream is done.
    fn cuStreamQuery(stream: CUstream);
    /// Lets a stream wait for an event.
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    /// Begins to capture a stream's work into a graph.
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    /// Ends a capture.
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    /// Whether a stream is being captured.
    fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    /// Exchanges the capture mode of this thread.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    /// Makes an event.
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    /// Releases an event.
    fn cuEventDestroy_v2(event: CUevent);
    /// Records an event in a stream.
    fn cuEventRecord(event: CUevent, stream: CUstream);
    /// Waits for an event.
    fn cuEventSynchronize(event: CUevent);
    /// Whether an event has happened.
    fn cuEventQuery(event: CUevent);
    /// Milliseconds between two events.
    fn cuEventElapsedTime(milliseconds: *mut c_float, start: CUevent, end: CUevent);
    /// Free and total memory in bytes.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Reads an attribute of the memory at an address.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_uint, pointer: CUdeviceptr);
    /// Allocates memory synchronously.
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    /// Frees memory synchronously.
    fn cuMemFree_v2(pointer: CUdeviceptr);
    /// Allocates memory in stream order.
    fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    /// Frees memory in stream order.
    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    /// Returns a pool's free memory to the system.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    /// Reads an attribute of a pool.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    /// Lets devices access a pool's memory.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
    /// Allocates page-locked host memory.
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees page-locked host memory.
    fn cuMemFreeHost(pointer: *mut c_void);
    /// Copies from the host in stream order.
    fn cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream);
    /// Copies to the host in stream order.
    fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies on the device in stream order.
    fn cuMemcpyDtoDAsync_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies between devices in stream order.
    fn cuMemcpyPeerAsync(
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    );
    /// Fills memory with a byte in stream order.
    fn cuMemsetD8Async(target: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    /// Fills memory with a word in stream order.
    fn cuMemsetD32Async(target: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    /// Loads a module from memory.
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options: c_uint,
        names: *mut c_uint,
        values: *mut *mut c_void,
    );
    /// Unloads a module.
    fn cuModuleUnload(module: CUmodule);
    /// A kernel by name.
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    /// Number of kernels of a module (12.4).
    fn cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
    /// The kernels of a module (12.4).
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule);
    /// The name of a kernel (12.3).
    fn cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    /// Loads a library from memory.
    fn cuLibraryLoadData(
        library: *mut CUlibrary,
        image: *const c_void,
        names: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
        library_names: *mut c_uint,
        library_values: *mut *mut c_void,
        library_count: c_uint,
    );
    /// Unloads a library.
    fn cuLibraryUnload(library: CUlibrary);
    /// A kernel of a library by name.
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    /// A library's kernel in this thread's context.
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    /// Reads an attribute of a kernel.
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction);
    /// Offset and size in bytes of a parameter of a kernel (12.4).
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    /// Sets an attribute of a kernel.
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
    /// Blocks of a kernel that fit on a multiprocessor together.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        block_size: c_int,
        dynamic_shared: usize,
    );
    /// The block size that fills the device best, and the number of such blocks.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared_of_block: *mut c_void,
        shared: usize,
        limit: c_int,
    );
    /// Clusters of a kernel that the device holds together.
    fn cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    /// Describes a tiled array for the tensor memory accelerator.
    fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        dtype: c_uint,
        rank: c_uint,
        address: *mut c_void,
        sizes: *const u64,
        strides: *const u64,
        tile: *const c_uint,
        steps: *const c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        promotion: c_uint,
        fill: c_uint,
    );
    /// Launches a kernel.
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// Instantiates a graph.
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Launches a graph.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    /// Uploads an instantiated graph to the device, so that its first launch does not have to.
    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    /// Updates an instantiated graph with the arguments of a graph of the same topology.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo);
    /// Releases an instantiated graph.
    fn cuGraphExecDestroy(exec: CUgraphExec);
    /// Releases a graph.
    fn cuGraphDestroy(graph: CUgraph);
    /// The nodes of a graph.
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// The kind of a node.
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    /// What a copy of a graph reads and writes.
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEMCPY3D);
    /// Whether a device can access another's memory.
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    /// Lets this thread's context access another's memory.
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    /// Disables the access that `cuCtxEnablePeerAccess` enabled.
    fn cuCtxDisablePeerAccess(peer: CUcontext);
    /// Starts collection by a profiler that was started with collection off.
    fn cuProfilerStart();
    /// Stops collection by a profiler.
    fn cuProfilerStop();
    /// The name of a result code.
    fn cuGetErrorName(code: CUresult, name: *mut *const c_char);
    /// The description of a result code.
    fn cuGetErrorString(code: CUresult, text: *mut *const c_char);
}

thread_local! {
    /// The first call of this thread that a capture refused since [`take_refused`].
    static REFUSED: Cell<Option<(&'static str, CUresult)>> = const { Cell::new(None) };
}

/// The first call of this thread that a capture refused since this function was called last: its name, and what it returned.
pub(crate) fn take_refused() -> Option<(&'static str, CUresult)> {
    REFUSED.take()
}

impl Calls {
    pub(crate) const LIBRARY: &str = "the CUDA driver";
    const MISSING: &str = "it is older than what this function needs; update the NVIDIA driver";

    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { table: Table::default(), provider }
    }

    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        if code == CUresult::SUCCESS {
            return Ok(());
        }
        if code.is_of_capture() && REFUSED.get().is_none() {
            REFUSED.set(Some((call, code)));
        }
        Err(self.error(call, code))
    }

    /// The error for a code that `call` returned, with the driver's name and description of it.
    pub fn error(&self, call: &'static str, code: CUresult) -> Error {
        let (name, text) = (self.words(code, true), self.words(code, false));
        Error::Call { call, code, name, text }
    }

    fn words(&self, code: CUresult, name: bool) -> String {
        // The two functions that name a code must not ask for the name of their own failure.
        let symbol = if name { c"cuGetErrorName" } else { c"cuGetErrorString" };
        let unknown =
            || if name { "unknown error".to_owned() } else { "the driver has no text for it".to_owned() };
        let Some(address) = self.provider.symbol(symbol) else { return unknown() };
        // SAFETY: both functions have this type.
        let function = unsafe {
            std::mem::transmute::<
                *const c_void,
                unsafe extern "system" fn(CUresult, *mut *const c_char) -> CUresult,
            >(address)
        };
        let mut text = std::ptr::null();
        // SAFETY: `text` is valid for the write.
        let result = unsafe { function(code, &mut text) };
        if result != CUresult::SUCCESS || text.is_null() {
            return unknown();
        }
        // SAFETY: on success the driver gave the address of a string of its own that lives for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Where the functions come from.
    pub fn provider(&self) -> String {
        self.provider.describe()
    }
}
