//! The driver: its functions, and what they return as errors.

use crate::{
    Error, Result,
    provider::{Dynamic, Provider},
    sys::*,
    table::table,
};
use std::{
    ffi::{CStr, c_char, c_float, c_int, c_uint, c_void},
    fmt,
    sync::Arc,
};

/// The CUDA driver. Cheap to clone.
#[derive(Clone)]
pub struct Driver(Arc<Calls>);

impl std::ops::Deref for Driver {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

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
    /// Takes part in a device's primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Leaves a device's primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// Makes a context this thread's.
    fn cuCtxSetCurrent(context: CUcontext);
    /// This thread's context.
    fn cuCtxGetCurrent(context: *mut CUcontext);
    /// Waits for everything in this thread's context.
    fn cuCtxSynchronize();
    /// Makes a stream.
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
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
    /// Allocates memory at once.
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    /// Frees memory at once.
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
    /// Makes a graph ready to launch.
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Launches a graph.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    /// Releases a graph made ready to launch.
    fn cuGraphExecDestroy(exec: CUgraphExec);
    /// Releases a graph.
    fn cuGraphDestroy(graph: CUgraph);
    /// The nodes of a graph.
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    /// Whether a device can access another's memory.
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    /// Lets this thread's context access another's memory.
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    /// The name of a code.
    fn cuGetErrorName(code: CUresult, name: *mut *const c_char);
    /// The description of a code.
    fn cuGetErrorString(code: CUresult, text: *mut *const c_char);
}

impl Calls {
    const LIBRARY: &str = "the CUDA driver";
    const MISSING: &str = "it is older than what this function needs; update the NVIDIA driver";

    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        if code == CUresult::SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    /// The error for a code that `call` returned, in the driver's words.
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

impl Driver {
    /// The oldest driver that is accepted, as [`version`](Self::version) counts: stream-ordered memory and graphs that
    /// allocate need CUDA 11.4; the kernels are compiled by a toolkit of major version 12 or later.
    pub const OLDEST: (u32, u32) = (12, 0);

    /// Names under which the driver's library is looked for.
    pub const PATHS: &[&str] = if cfg!(windows) {
        &["nvcuda.dll"]
    } else {
        &[
            "libcuda.so.1",
            "libcuda.so",
            "/usr/lib/wsl/lib/libcuda.so.1",
            "/usr/local/nvidia/lib64/libcuda.so.1",
        ]
    };

    /// Opens the driver's library and initialises it.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried; otherwise as [`new`](Self::new).
    pub fn load() -> Result<Self> {
        const HINT: &str =
            "install the NVIDIA driver, or set LD_LIBRARY_PATH to the folder that has its library";
        Self::new(Dynamic::open(Calls::LIBRARY, Self::PATHS, HINT)?)
    }

    /// Opens this library instead, such as a stand-in for tests.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn open(path: &str) -> Result<Self> {
        Self::new(Dynamic::open(Calls::LIBRARY, &[path], "check the path")?)
    }

    /// A driver whose functions come from `provider`, initialised.
    ///
    /// # Errors
    /// [`Error::Call`] if there is no device, or the driver does not start; [`Error::DriverTooOld`] if it is older than
    /// [`OLDEST`](Self::OLDEST).
    pub fn new(provider: impl Provider + 'static) -> Result<Self> {
        let driver = Self(Arc::new(Calls { table: Table::default(), provider: Box::new(provider) }));
        // The version needs no initialisation, and tells more than what an old driver answers to it.
        let (found, needed) = (driver.version()?, Self::OLDEST);
        if found < needed {
            return Err(Error::DriverTooOld { provider: driver.provider(), found, needed });
        }
        // SAFETY: no preconditions.
        unsafe { driver.cuInit(0)? };
        Ok(driver)
    }

    /// The newest CUDA version that the driver serves: major, minor.
    ///
    /// # Errors
    /// From the driver.
    pub fn version(&self) -> Result<(u32, u32)> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.cuDriverGetVersion(&mut version)? };
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// Number of devices.
    ///
    /// # Errors
    /// From the driver.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.cuDeviceGetCount(&mut count)? };
        Ok(count.max(0) as usize)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({})", self.provider())
    }
}
