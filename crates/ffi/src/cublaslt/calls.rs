//! The functions of cuBLASLt (`cublasLt.h`), with their own names.

#![allow(non_camel_case_types)]

use crate::{
    Error, Provider, Result,
    sys::CUstream,
    table::{table, text_of},
};
use std::ffi::{c_float, c_int, c_void};

/// An object of the library: handle, description, layout or preference.
pub type Object = *mut c_void;

/// The result code of a call. An integer, not an enum: a library may return codes unknown to this crate.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct cublasStatus_t(pub c_int);

impl cublasStatus_t {
    /// `CUBLAS_STATUS_SUCCESS`
    pub const SUCCESS: Self = Self(0);
    /// `CUBLAS_STATUS_EXECUTION_FAILED`: mostly an error of earlier work.
    pub const EXECUTION_FAILED: Self = Self(13);
    /// `CUBLAS_STATUS_NOT_SUPPORTED`: no algorithm does this.
    pub const NOT_SUPPORTED: Self = Self(15);
}

/// An algorithm for a matrix product.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct cublasLtMatmulAlgo_t {
    /// Opaque.
    pub data: [u64; 8],
}

/// An algorithm that the library's heuristic proposes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct cublasLtMatmulHeuristicResult_t {
    /// The algorithm.
    pub algo: cublasLtMatmulAlgo_t,
    /// The workspace that the algorithm needs, in bytes.
    pub workspace_size: usize,
    /// Whether the algorithm can be used.
    pub state: cublasStatus_t,
    /// Number of waves of blocks on the device.
    pub waves_count: c_float,
    /// Unused.
    pub reserved: [c_int; 4],
}

/// The functions as `unsafe` methods under their own names.
pub struct Calls {
    table: Table,
    provider: Box<dyn Provider>,
}

table! {
    impl Calls, struct Table, code cublasStatus_t;

    /// A part of the library's version.
    fn cublasLtGetProperty(which: c_int, value: *mut c_int);
    /// A handle in this thread's context.
    fn cublasLtCreate(handle: *mut Object);
    /// Releases a handle.
    fn cublasLtDestroy(handle: Object);
    /// A description of a product.
    fn cublasLtMatmulDescCreate(description: *mut Object, compute: c_int, scale: c_int);
    /// Releases a description.
    fn cublasLtMatmulDescDestroy(description: Object);
    /// Sets an attribute of a description.
    fn cublasLtMatmulDescSetAttribute(description: Object, which: c_int, value: *const c_void, bytes: usize);
    /// The layout of a matrix.
    fn cublasLtMatrixLayoutCreate(layout: *mut Object, dtype: c_int, rows: u64, columns: u64, stride: i64);
    /// Releases a layout.
    fn cublasLtMatrixLayoutDestroy(layout: Object);
    /// Sets an attribute of a layout.
    fn cublasLtMatrixLayoutSetAttribute(layout: Object, which: c_int, value: *const c_void, bytes: usize);
    /// Creates a preference: the search criteria for algorithms.
    fn cublasLtMatmulPreferenceCreate(preference: *mut Object);
    /// Releases a preference.
    fn cublasLtMatmulPreferenceDestroy(preference: Object);
    /// Sets an attribute of a preference.
    fn cublasLtMatmulPreferenceSetAttribute(preference: Object, which: c_int, value: *const c_void, bytes: usize);
    /// Algorithms for a product, the one expected to be fastest first.
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: Object,
        description: Object,
        a: Object,
        b: Object,
        c: Object,
        d: Object,
        preference: Object,
        most: c_int,
        results: *mut cublasLtMatmulHeuristicResult_t,
        found: *mut c_int,
    );
    /// Queues d = alpha · a · b + beta · c.
    fn cublasLtMatmul(
        handle: Object,
        description: Object,
        alpha: *const c_void,
        a: *const c_void,
        a_layout: Object,
        b: *const c_void,
        b_layout: Object,
        beta: *const c_void,
        c: *const c_void,
        c_layout: Object,
        d: *mut c_void,
        d_layout: Object,
        algorithm: *const cublasLtMatmulAlgo_t,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: CUstream,
    );
}

impl Calls {
    pub(crate) const LIBRARY: &str = "cuBLASLt, the matrix products of CUDA";
    const MISSING: &str = "it is older than what this function needs; install CUDA 12 or later";

    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { table: Table::default(), provider }
    }

    pub(crate) fn check(&self, call: &'static str, code: cublasStatus_t) -> Result<()> {
        if code == cublasStatus_t::SUCCESS {
            return Ok(());
        }
        // SAFETY: the function has this type; it answers with constants.
        let text = unsafe { text_of(&*self.provider, c"cublasLtGetStatusString", code) };
        let mut text = text.unwrap_or_else(|| "unknown error".to_owned());
        if code == cublasStatus_t::EXECUTION_FAILED {
            text += "; mostly an error of work queued before, which synchronising after each launch finds";
        }
        Err(Error::Status { library: "cuBLASLt", call, code: code.0, text })
    }

    /// Where the functions come from.
    pub fn provider(&self) -> String {
        self.provider.describe()
    }
}
