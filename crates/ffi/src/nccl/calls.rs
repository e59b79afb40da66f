//! The functions of NCCL (`nccl.h`), with their own names.

#![allow(non_camel_case_types)]

use crate::{
    Error, Provider, Result,
    sys::CUstream,
    table::{table, text_of},
};
use std::ffi::{c_int, c_uint, c_void};

/// A communicator.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ncclComm_t(pub *mut c_void);

impl ncclComm_t {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());
}

// SAFETY: a handle is an opaque name; the library may be called with it from any thread, one at a time.
unsafe impl Send for ncclComm_t {}

/// The result code of a call. An integer, not an enum: a library may return codes unknown to this crate.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ncclResult_t(pub c_int);

impl ncclResult_t {
    /// `ncclSuccess`
    pub const SUCCESS: Self = Self(0);
    /// `ncclRemoteError`: another process is gone, or the network failed.
    pub const REMOTE_ERROR: Self = Self(6);
    /// `ncclInProgress`: a call of a non-blocking communicator is still in progress.
    pub const IN_PROGRESS: Self = Self(7);
}

/// The identifier of a group of communicators.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ncclUniqueId {
    /// Opaque.
    pub internal: [u8; 128],
}

/// Options of a communicator in the layout of version 2.14; later versions use defaults for the fields added since.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclConfig_t {
    /// Bytes of the structure.
    pub size: usize,
    /// `0xcafebeef`
    pub magic: c_uint,
    /// The version that defined it.
    pub version: c_uint,
    /// 0 for non-blocking calls.
    pub blocking: c_int,
}

impl ncclConfig_t {
    /// `NCCL_CONFIG_INITIALIZER` of version 2.14, with or without blocking.
    pub const fn new(blocking: bool) -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21400, blocking: blocking as c_int }
    }
}

/// The type of elements.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ncclDataType_t(pub c_int);

impl ncclDataType_t {
    /// `ncclFloat16`
    pub const FLOAT16: Self = Self(6);
    /// `ncclFloat32`
    pub const FLOAT32: Self = Self(7);
    /// `ncclFloat64`
    pub const FLOAT64: Self = Self(8);
    /// `ncclBfloat16`
    pub const BFLOAT16: Self = Self(9);
}

/// How elements are combined.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ncclRedOp_t(pub c_int);

impl ncclRedOp_t {
    /// `ncclSum`
    pub const SUM: Self = Self(0);
}

/// The functions as `unsafe` methods under their own names.
pub struct Calls {
    table: Table,
    provider: Box<dyn Provider>,
}

table! {
    impl Calls, struct Table, code ncclResult_t;

    /// The library's version, as in 22800.
    fn ncclGetVersion(version: *mut c_int);
    /// A new identifier for a group of communicators.
    fn ncclGetUniqueId(id: *mut ncclUniqueId);
    /// Creates this process's communicator of a group.
    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        world: c_int,
        id: ncclUniqueId,
        rank: c_int,
        config: *mut ncclConfig_t,
    );
    /// Flushes outstanding operations.
    fn ncclCommFinalize(comm: ncclComm_t);
    /// Releases a communicator.
    fn ncclCommDestroy(comm: ncclComm_t);
    /// Aborts operations that run on the device, and releases a communicator.
    fn ncclCommAbort(comm: ncclComm_t);
    /// The state of a communicator's asynchronous operations.
    fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t);
    /// Number of processes.
    fn ncclCommCount(comm: ncclComm_t, count: *mut c_int);
    /// Combines arrays of all processes, at every process.
    fn ncclAllReduce(
        source: *const c_void,
        target: *mut c_void,
        count: usize,
        dtype: ncclDataType_t,
        operation: ncclRedOp_t,
        comm: ncclComm_t,
        stream: CUstream,
    );
    /// Copies an array of one process to all.
    fn ncclBroadcast(
        source: *const c_void,
        target: *mut c_void,
        count: usize,
        dtype: ncclDataType_t,
        root: c_int,
        comm: ncclComm_t,
        stream: CUstream,
    );
    /// Begins a group of calls that are one launch.
    fn ncclGroupStart();
    /// Ends a group of calls.
    fn ncclGroupEnd();
}

impl Calls {
    pub(crate) const LIBRARY: &str = "NCCL, the library for communication between GPUs";
    const MISSING: &str = "it is older than what this function needs; install NCCL 2.14 or later";

    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { table: Table::default(), provider }
    }

    pub(crate) fn check(&self, call: &'static str, code: ncclResult_t) -> Result<()> {
        if code == ncclResult_t::SUCCESS {
            return Ok(());
        }
        if code == ncclResult_t::IN_PROGRESS {
            // Being in progress is no error and is polled often, so its text is not looked up.
            let text = "in progress".to_owned();
            return Err(Error::Status { library: "NCCL", call, code: code.0, text });
        }
        // SAFETY: the function has this type; it answers with constants.
        let text = unsafe { text_of(&*self.provider, c"ncclGetErrorString", code) };
        let mut text = text.unwrap_or_else(|| "unknown error".to_owned());
        // With a null communicator the library reports the last error of any communicator.
        // SAFETY: the function has this type since 2.13; its answer lives as long as the thread's next error, and is copied.
        let last = unsafe { text_of(&*self.provider, c"ncclGetLastError", ncclComm_t::NULL) };
        if let Some(last) = last.filter(|last| !last.trim().is_empty()) {
            text = format!("{text}: {}", last.trim());
        }
        Err(Error::Status { library: "NCCL", call, code: code.0, text })
    }

    /// Where the functions come from.
    pub fn provider(&self) -> String {
        self.provider.describe()
    }
}
