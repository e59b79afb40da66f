//! The functions of NVRTC (`nvrtc.h`), with their own names.

#![allow(non_camel_case_types)]

use crate::{
    Error, Provider, Result,
    table::{table, text_of},
};
use std::ffi::{c_char, c_int, c_void};

/// A program being compiled.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct nvrtcProgram(pub *mut c_void);

impl nvrtcProgram {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());
}

/// The result code of a call. An integer, not an enum: a library may return codes unknown to this crate.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct nvrtcResult(pub c_int);

impl nvrtcResult {
    /// `NVRTC_SUCCESS`
    pub const SUCCESS: Self = Self(0);
    /// `NVRTC_ERROR_INVALID_OPTION`
    pub const ERROR_INVALID_OPTION: Self = Self(5);
    /// `NVRTC_ERROR_COMPILATION`
    pub const ERROR_COMPILATION: Self = Self(6);
}

/// The functions as `unsafe` methods under their own names.
pub struct Calls {
    table: Table,
    provider: Box<dyn Provider>,
}

table! {
    impl Calls, struct Table, code nvrtcResult;

    /// The library's version.
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    /// Number of architectures it compiles for.
    fn nvrtcGetNumSupportedArchs(count: *mut c_int);
    /// The architectures it compiles for.
    fn nvrtcGetSupportedArchs(architectures: *mut c_int);
    /// A program from source and headers.
    fn nvrtcCreateProgram(
        program: *mut nvrtcProgram,
        source: *const c_char,
        name: *const c_char,
        header_count: c_int,
        headers: *const *const c_char,
        header_names: *const *const c_char,
    );
    /// Releases a program.
    fn nvrtcDestroyProgram(program: *mut nvrtcProgram);
    /// Compiles a program.
    fn nvrtcCompileProgram(program: nvrtcProgram, option_count: c_int, options: *const *const c_char);
    /// Size in bytes of the PTX, the zero byte at the end included.
    fn nvrtcGetPTXSize(program: nvrtcProgram, size: *mut usize);
    /// The PTX.
    fn nvrtcGetPTX(program: nvrtcProgram, ptx: *mut c_char);
    /// Size in bytes of the machine code; 0 if the target is a virtual architecture.
    fn nvrtcGetCUBINSize(program: nvrtcProgram, size: *mut usize);
    /// The machine code.
    fn nvrtcGetCUBIN(program: nvrtcProgram, cubin: *mut c_char);
    /// Size in bytes of the log, the zero byte at the end included.
    fn nvrtcGetProgramLogSize(program: nvrtcProgram, size: *mut usize);
    /// The log.
    fn nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char);
    /// Registers a name expression, before compiling.
    fn nvrtcAddNameExpression(program: nvrtcProgram, expression: *const c_char);
    /// The mangled name of a registered expression, after compiling.
    fn nvrtcGetLoweredName(program: nvrtcProgram, expression: *const c_char, name: *mut *const c_char);
}

impl Calls {
    pub(crate) const LIBRARY: &str = "NVRTC, the run-time compiler of CUDA";
    const MISSING: &str = "it is older than what this function needs; install CUDA 12 or later";

    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { table: Table::default(), provider }
    }

    pub(crate) fn check(&self, call: &'static str, code: nvrtcResult) -> Result<()> {
        if code == nvrtcResult::SUCCESS {
            return Ok(());
        }
        // SAFETY: the function has this type; it answers with constants.
        let text = unsafe { text_of(&*self.provider, c"nvrtcGetErrorString", code) };
        let text = text.unwrap_or_else(|| "unknown error".to_owned());
        Err(Error::Status { library: "NVRTC", call, code: code.0, text })
    }

    /// Where the functions come from.
    pub fn provider(&self) -> String {
        self.provider.describe()
    }
}
