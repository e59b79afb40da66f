//! Types and constants of the driver API (`cuda.h`), with its own names.

#![allow(non_camel_case_types)]

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    fmt,
};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub struct $name(pub *mut c_void);

            impl $name {
                /// The null handle.
                pub const NULL: Self = Self(std::ptr::null_mut());
            }

            // SAFETY: a handle is an opaque name; the driver API may be called with it from any thread.
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )*
    };
}

handles! {
    /// A context.
    CUcontext;
    /// A stream.
    CUstream;
    /// An event.
    CUevent;
    /// A loaded module.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
    /// A graph.
    CUgraph;
    /// An instantiated graph.
    CUgraphExec;
    /// A node of a graph.
    CUgraphNode;
    /// A memory pool.
    CUmemoryPool;
    /// Compiled kernels that belong to no context.
    CUlibrary;
    /// A kernel of a library.
    CUkernel;
}

/// The number of a device as the driver counts.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;

/// The result code of a call of the driver API. An integer, not an enum: a driver may return codes unknown to this crate.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUresult(pub c_uint);

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUresult({})", self.0)
    }
}

macro_rules! results {
    ($($name:ident = $value:literal;)*) => {
        impl CUresult {
            $(
                #[doc = concat!("`CUDA_", stringify!($name), "`")]
                pub const $name: Self = Self($value);
            )*
        }
    };
}

results! {
    SUCCESS = 0;
    ERROR_INVALID_VALUE = 1;
    ERROR_OUT_OF_MEMORY = 2;
    ERROR_NOT_INITIALIZED = 3;
    ERROR_DEINITIALIZED = 4;
    ERROR_STUB_LIBRARY = 34;
    ERROR_NO_DEVICE = 100;
    ERROR_INVALID_DEVICE = 101;
    ERROR_INVALID_IMAGE = 200;
    ERROR_INVALID_CONTEXT = 201;
    ERROR_NO_BINARY_FOR_GPU = 209;
    ERROR_ECC_UNCORRECTABLE = 214;
    ERROR_INVALID_PTX = 218;
    ERROR_UNSUPPORTED_PTX_VERSION = 222;
    ERROR_INVALID_SOURCE = 300;
    ERROR_FILE_NOT_FOUND = 301;
    ERROR_SHARED_OBJECT_INIT_FAILED = 303;
    ERROR_INVALID_HANDLE = 400;
    ERROR_ILLEGAL_STATE = 401;
    ERROR_NOT_FOUND = 500;
    ERROR_NOT_READY = 600;
    ERROR_ILLEGAL_ADDRESS = 700;
    ERROR_LAUNCH_OUT_OF_RESOURCES = 701;
    ERROR_LAUNCH_TIMEOUT = 702;
    ERROR_PEER_ACCESS_ALREADY_ENABLED = 704;
    ERROR_PEER_ACCESS_NOT_ENABLED = 705;
    ERROR_ASSERT = 710;
    ERROR_HARDWARE_STACK_ERROR = 714;
    ERROR_ILLEGAL_INSTRUCTION = 715;
    ERROR_MISALIGNED_ADDRESS = 716;
    ERROR_INVALID_ADDRESS_SPACE = 717;
    ERROR_INVALID_PC = 718;
    ERROR_LAUNCH_FAILED = 719;
    ERROR_NOT_PERMITTED = 800;
    ERROR_NOT_SUPPORTED = 801;
    ERROR_SYSTEM_DRIVER_MISMATCH = 803;
    ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804;
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
    ERROR_STREAM_CAPTURE_INVALIDATED = 901;
    ERROR_STREAM_CAPTURE_MERGE = 902;
    ERROR_STREAM_CAPTURE_UNMATCHED = 903;
    ERROR_STREAM_CAPTURE_UNJOINED = 904;
    ERROR_STREAM_CAPTURE_ISOLATION = 905;
    ERROR_STREAM_CAPTURE_IMPLICIT = 906;
    ERROR_CAPTURED_EVENT = 907;
    ERROR_STREAM_CAPTURE_WRONG_THREAD = 908;
    ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910;
    ERROR_INVALID_CLUSTER_SIZE = 912;
    ERROR_UNKNOWN = 999;
}

impl CUresult {
    /// Whether a call failed because of a capture: what it does cannot be recorded, or the capture was broken before.
    pub const fn is_of_capture(self) -> bool {
        self.0 >= Self::ERROR_STREAM_CAPTURE_UNSUPPORTED.0
            && self.0 <= Self::ERROR_STREAM_CAPTURE_WRONG_THREAD.0
    }

    /// Whether the error is sticky: every later call in the context fails, and only a new process recovers.
    pub const fn is_sticky(self) -> bool {
        matches!(
            self,
            Self::ERROR_ECC_UNCORRECTABLE
                | Self::ERROR_ILLEGAL_ADDRESS
                | Self::ERROR_LAUNCH_TIMEOUT
                | Self::ERROR_ASSERT
                | Self::ERROR_HARDWARE_STACK_ERROR
                | Self::ERROR_ILLEGAL_INSTRUCTION
                | Self::ERROR_MISALIGNED_ADDRESS
                | Self::ERROR_INVALID_ADDRESS_SPACE
                | Self::ERROR_INVALID_PC
                | Self::ERROR_LAUNCH_FAILED
        )
    }
}

/// Attributes of a device, `CU_DEVICE_ATTRIBUTE_*`.
pub mod device_attribute {
    use std::ffi::c_int;

    /// Threads per block, at most.
    pub const MAX_THREADS_PER_BLOCK: c_int = 1;
    /// Size of a block in x, at most; y and z follow.
    pub const MAX_BLOCK_DIM_X: c_int = 2;
    /// Size of a grid in x, at most; y and z follow.
    pub const MAX_GRID_DIM_X: c_int = 5;
    /// Shared memory of a block in bytes, without asking for more.
    pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
    /// Threads per warp.
    pub const WARP_SIZE: c_int = 10;
    /// 32-bit registers per block, at most.
    pub const MAX_REGISTERS_PER_BLOCK: c_int = 12;
    /// Core clock in kHz.
    pub const CLOCK_RATE: c_int = 13;
    /// Number of multiprocessors.
    pub const MULTIPROCESSOR_COUNT: c_int = 16;
    /// Whether kernels have a run-time limit.
    pub const KERNEL_EXEC_TIMEOUT: c_int = 17;
    /// Compute mode.
    pub const COMPUTE_MODE: c_int = 20;
    /// Whether ECC is on.
    pub const ECC_ENABLED: c_int = 32;
    /// Memory clock in kHz.
    pub const MEMORY_CLOCK_RATE: c_int = 36;
    /// Width of the memory bus in bits.
    pub const GLOBAL_MEMORY_BUS_WIDTH: c_int = 37;
    /// L2 cache in bytes.
    pub const L2_CACHE_SIZE: c_int = 38;
    /// Threads per multiprocessor, at most.
    pub const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;
    /// Compute capability, before the point.
    pub const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
    /// Compute capability, after the point.
    pub const COMPUTE_CAPABILITY_MINOR: c_int = 76;
    /// Shared memory per multiprocessor in bytes.
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: c_int = 81;
    /// Registers per multiprocessor.
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: c_int = 82;
    /// Shared memory of a block in bytes, when asked for.
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
    /// Whether there are memory pools.
    pub const MEMORY_POOLS_SUPPORTED: c_int = 115;
    /// Whether blocks can be launched in clusters.
    pub const CLUSTER_LAUNCH: c_int = 120;
}

/// Attributes of a kernel, `CU_FUNC_ATTRIBUTE_*`.
pub mod function_attribute {
    use std::ffi::c_int;

    /// Threads per block, at most.
    pub const MAX_THREADS_PER_BLOCK: c_int = 0;
    /// Static shared memory in bytes.
    pub const SHARED_SIZE_BYTES: c_int = 1;
    /// Local memory per thread in bytes: stack and spilled registers.
    pub const LOCAL_SIZE_BYTES: c_int = 3;
    /// Registers per thread.
    pub const NUM_REGS: c_int = 4;
    /// The PTX version it was compiled from.
    pub const PTX_VERSION: c_int = 5;
    /// The machine code version.
    pub const BINARY_VERSION: c_int = 6;
    /// Dynamic shared memory that a launch may ask for, in bytes; settable.
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
    /// Whether clusters of more than eight blocks are allowed; settable.
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
}

/// Options of the just-in-time compiler, `CU_JIT_*`.
pub mod jit_option {
    use std::ffi::c_uint;

    /// A buffer for the compiler's log.
    pub const INFO_LOG_BUFFER: c_uint = 3;
    /// Size of that buffer.
    pub const INFO_LOG_BUFFER_SIZE_BYTES: c_uint = 4;
    /// A buffer for the compiler's errors.
    pub const ERROR_LOG_BUFFER: c_uint = 5;
    /// Size of that buffer.
    pub const ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
}

/// Attributes of an address, `CU_POINTER_ATTRIBUTE_*`.
pub mod pointer_attribute {
    use std::ffi::c_uint;

    /// The number of the device that the memory is on (`i32`).
    pub const DEVICE_ORDINAL: c_uint = 9;
}

/// Attributes of a memory pool, `CU_MEMPOOL_ATTR_*`.
pub mod pool_attribute {
    use std::ffi::c_uint;

    /// Bytes of free memory that the pool keeps at a synchronisation (`u64`, settable).
    pub const RELEASE_THRESHOLD: c_uint = 4;
    /// Bytes obtained from the system now (`u64`).
    pub const RESERVED_MEM_CURRENT: c_uint = 5;
    /// The most bytes obtained from the system (`u64`; setting 0 resets).
    pub const RESERVED_MEM_HIGH: c_uint = 6;
    /// Bytes in use now (`u64`).
    pub const USED_MEM_CURRENT: c_uint = 7;
    /// The most bytes in use (`u64`; setting 0 resets).
    pub const USED_MEM_HIGH: c_uint = 8;
}

/// Which calls a capture forbids, `CU_STREAM_CAPTURE_MODE_*`.
pub mod capture_mode {
    use std::ffi::c_uint;

    /// Unsafe calls in any thread.
    pub const GLOBAL: c_uint = 0;
    /// Unsafe calls in this thread.
    pub const THREAD_LOCAL: c_uint = 1;
    /// Nothing.
    pub const RELAXED: c_uint = 2;
}

/// The state of a stream's capture, `CU_STREAM_CAPTURE_STATUS_*`.
pub mod capture_status {
    use std::ffi::c_uint;

    /// Work is recorded.
    pub const ACTIVE: c_uint = 1;
    /// A forbidden call broke the capture, which has not been ended yet.
    pub const INVALIDATED: c_uint = 2;
}

/// Kinds of nodes of a graph, `CU_GRAPH_NODE_TYPE_*`.
pub mod graph_node_type {
    use std::ffi::c_uint;

    /// A kernel.
    pub const KERNEL: c_uint = 0;
    /// A copy.
    pub const MEMCPY: c_uint = 1;
    /// A fill.
    pub const MEMSET: c_uint = 2;
    /// A function of the host.
    pub const HOST: c_uint = 3;
    /// Memory taken from the device's pool.
    pub const MEM_ALLOC: c_uint = 10;
    /// Memory returned to the pool.
    pub const MEM_FREE: c_uint = 11;
}

/// Where the memory of a copy is, `CU_MEMORYTYPE_*`.
pub mod memory_type {
    use std::ffi::c_uint;

    /// On the host.
    pub const HOST: c_uint = 1;
    /// As the address says.
    pub const UNIFIED: c_uint = 4;
}

/// Page-locked host memory for all contexts.
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;

/// A stream that does not wait for the legacy default stream.
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
/// An event without time stamp.
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_uint = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

/// An attribute of a launch. The value's bytes are read by the attribute's kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchAttribute {
    /// Which attribute.
    pub id: c_uint,
    /// Padding to the alignment of the value.
    pub pad: [c_char; 4],
    /// The value, a union in the driver API.
    pub value: [u64; 8],
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchConfig {
    /// Blocks in x.
    pub grid_dim_x: c_uint,
    /// Blocks in y.
    pub grid_dim_y: c_uint,
    /// Blocks in z.
    pub grid_dim_z: c_uint,
    /// Threads of a block in x.
    pub block_dim_x: c_uint,
    /// Threads of a block in y.
    pub block_dim_y: c_uint,
    /// Threads of a block in z.
    pub block_dim_z: c_uint,
    /// Dynamic shared memory in bytes.
    pub shared_mem_bytes: c_uint,
    /// The stream.
    pub stream: CUstream,
    /// The attributes.
    pub attrs: *mut CUlaunchAttribute,
    /// Their number.
    pub num_attrs: c_uint,
}

/// Who may access the memory of a pool, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    /// What `id` names: 1 for a device.
    pub location_type: c_int,
    /// The device.
    pub id: c_int,
    /// 0 not at all, 1 reading, 3 reading and writing.
    pub flags: c_int,
}

/// The result of updating a graph.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUgraphExecUpdateResultInfo {
    /// 0 if it was done; otherwise `CU_GRAPH_EXEC_UPDATE_ERROR_*`.
    pub result: c_uint,
    /// The node of the new graph that caused the error.
    pub error_node: CUgraphNode,
    /// If a dependency caused the error: the node that `error_node` depends on.
    pub error_from_node: CUgraphNode,
}

/// One side of a copy: the first or second half of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemcpySide {
    /// The first byte in x.
    pub x_in_bytes: usize,
    /// The first row.
    pub y: usize,
    /// The first slice.
    pub z: usize,
    /// The level of detail of an array.
    pub lod: usize,
    /// Where the memory is, of [`memory_type`].
    pub memory_type: c_uint,
    /// The address, of host memory.
    pub host: *mut c_void,
    /// The address, of device or unified memory.
    pub device: CUdeviceptr,
    /// The array, if it is one.
    pub array: *mut c_void,
    /// Null.
    pub reserved: *mut c_void,
    /// Bytes between rows.
    pub pitch: usize,
    /// Rows between slices.
    pub height: usize,
}

/// A copy in up to three dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUDA_MEMCPY3D {
    /// What is read.
    pub source: CUmemcpySide,
    /// What is written.
    pub target: CUmemcpySide,
    /// Bytes of a row.
    pub width_in_bytes: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// The description of an array for the tensor memory accelerator; passed to a kernel by value.
#[repr(C, align(128))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CUtensorMap(pub [u64; 16]);

impl fmt::Debug for CUtensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CUtensorMap")
    }
}
