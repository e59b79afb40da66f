//! The C ABI of XLA's foreign functions (xla/ffi/api/c_api.h of jaxlib), as far as handlers here need it.
//!
//! Every struct begins with its size, and later versions add fields at the end alone, so a struct that is at least as large as ours has
//! ours at its beginning.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

/// `XLA_FFI_Extension_Metadata`: the runtime asks what the handler is.
pub const METADATA: c_int = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ApiVersion {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

/// The major version that these structs are of.
pub const MAJOR: c_int = 0;

#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub api_version: ApiVersion,
    pub traits: u32,
}

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

/// An error that the runtime made and takes back.
pub enum Error {}

#[repr(C)]
pub struct ErrorCreate {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

/// Codes of errors.
pub mod code {
    use std::ffi::c_int;

    pub const INVALID_ARGUMENT: c_int = 3;
    pub const RESOURCE_EXHAUSTED: c_int = 8;
    pub const FAILED_PRECONDITION: c_int = 9;
    pub const INTERNAL: c_int = 13;
}

pub enum Context {}

#[repr(C)]
pub struct StreamGet {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut Context,
    pub stream: *mut c_void,
}

#[repr(C)]
pub struct MemoryAllocate {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut Context,
    pub size: usize,
    pub alignment: usize,
    pub data: *mut c_void,
}

#[repr(C)]
pub struct MemoryFree {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut Context,
    pub size: usize,
    pub data: *mut c_void,
}

#[repr(C)]
pub struct DeviceOrdinalGet {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut Context,
    pub ordinal: i32,
}

#[repr(C)]
pub struct ErrorText {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub error: *mut Error,
    pub message: *const c_char,
}

#[repr(C)]
pub struct ErrorDestroy {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub error: *mut Error,
}

/// A function that handlers here do not call.
type Unused = *const c_void;

/// The functions of the runtime.
#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub version: ApiVersion,
    pub internal: *const c_void,
    pub error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut Error,
    pub error_message: unsafe extern "C" fn(*mut ErrorText),
    pub error_destroy: unsafe extern "C" fn(*mut ErrorDestroy),
    pub handler_register: Unused,
    pub stream_get: unsafe extern "C" fn(*mut StreamGet) -> *mut Error,
    pub type_register: Unused,
    pub context_get: Unused,
    pub state_set: Unused,
    pub state_get: Unused,
    pub memory_allocate: unsafe extern "C" fn(*mut MemoryAllocate) -> *mut Error,
    pub memory_free: unsafe extern "C" fn(*mut MemoryFree) -> *mut Error,
    pub pool_schedule: Unused,
    pub pool_threads: Unused,
    pub future_create: Unused,
    pub future_set_available: Unused,
    pub future_set_error: Unused,
    pub run_id: Unused,
    pub device_ordinal_get: unsafe extern "C" fn(*mut DeviceOrdinalGet) -> *mut Error,
}

#[repr(C)]
pub struct Buffer {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *mut i64,
}

/// Types of elements.
pub mod dtype {
    use std::ffi::c_int;

    pub const F16: c_int = 10;
    pub const F32: c_int = 11;
    pub const F64: c_int = 12;
    pub const BF16: c_int = 16;
}

#[repr(C)]
pub struct Span {
    pub start: *const u8,
    pub length: usize,
}

/// Arguments or results: buffers, where their type is [`BUFFER`].
#[repr(C)]
pub struct Buffers {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *mut c_int,
    pub items: *mut *mut c_void,
}

pub const BUFFER: c_int = 1;

/// Attributes: spans of text, where their type is [`STRING`].
#[repr(C)]
pub struct Attributes {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *mut c_int,
    pub names: *mut *mut Span,
    pub items: *mut *mut c_void,
}

pub const STRING: c_int = 4;

#[repr(C)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub api: *const Api,
    pub context: *mut Context,
    pub stage: c_int,
    pub arguments: Buffers,
    pub results: Buffers,
    pub attributes: Attributes,
}

/// `XLA_FFI_ExecutionStage_EXECUTE`
pub const EXECUTE: c_int = 3;

/// A handler of calls.
pub type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Error;
