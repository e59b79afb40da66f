//! XLA calls: their operands and attributes, and the functions of the runtime that they may use.

use super::{
    Failure,
    ffi::{self, CallFrame},
    memory::Target,
    runtime::Runtime,
};
use crate::errors::Class;
use gradewise_core::DType;
use gradewise_kernels::{Array, Borrowed, CudaDevice, Device};
use std::{
    ffi::{CString, c_int},
    mem::{offset_of, size_of},
    ptr,
};

/// An error of the runtime with a message; null, which stands for success, where the runtime cannot make one.
///
/// # Safety
/// `api` must be null or the runtime's.
pub unsafe fn error(api: *const ffi::Api, failure: &Failure) -> *mut ffi::Error {
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    let mut made = ffi::ErrorCreate {
        struct_size: size_of::<ffi::ErrorCreate>(),
        extension: ptr::null_mut(),
        message: message.as_ptr(),
        code: failure.code,
    };
    if api.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: as the caller says; the message is copied.
    unsafe { ((*api).error_create)(&raw mut made) }
}

/// A call, checked.
pub struct Call<'a> {
    frame: &'a CallFrame,
    pub runtime: Runtime,
}

// SAFETY: the frame is only read, and nothing in it is bound to the thread that XLA calls on.
unsafe impl Sync for Call<'_> {}

fn malformed(message: impl Into<String>) -> Failure {
    Failure { code: ffi::code::INTERNAL, message: message.into() }
}

impl<'a> Call<'a> {
    /// # Safety
    /// The frame must be one that XLA passed to a handler, during the call.
    pub unsafe fn new(frame: &'a CallFrame) -> Result<Self, Failure> {
        if frame.struct_size < offset_of!(CallFrame, attributes) + size_of::<ffi::Attributes>() {
            return Err(malformed("this jaxlib has another interface of foreign functions; update it"));
        }
        if frame.stage != ffi::EXECUTE {
            return Err(malformed(format!("called at stage {}, which needs no work", frame.stage)));
        }
        // SAFETY: as the caller says; the fields before the functions are the same in all versions.
        let (size, version) = unsafe { ((*frame.api).struct_size, (*frame.api).version) };
        if version.major != ffi::MAJOR || size < offset_of!(ffi::Api, type_register) {
            let message = format!(
                "jaxlib has version {}.{} of XLA's foreign functions; gradewise knows {}.x",
                version.major,
                version.minor,
                ffi::MAJOR
            );
            return Err(malformed(message));
        }
        Ok(Self { frame, runtime: Runtime { api: frame.api, context: frame.context } })
    }

    /// An attribute that is text.
    pub fn text(&self, name: &str) -> Result<&'a str, Failure> {
        let attributes = &self.frame.attributes;
        for index in 0..usize::try_from(attributes.size).unwrap_or(0) {
            // SAFETY: there are so many names, types and items.
            let (span, kind, item) = unsafe {
                (&**attributes.names.add(index), *attributes.types.add(index), *attributes.items.add(index))
            };
            // SAFETY: a span of the frame.
            if unsafe { bytes(span) } != name.as_bytes() {
                continue;
            }
            if kind != ffi::STRING {
                break;
            }
            // SAFETY: the item of this type is a span, which lives as long as the frame.
            let text = unsafe { bytes(&*item.cast::<ffi::Span>()) };
            return std::str::from_utf8(text).map_err(|_| malformed(format!("`{name}` is not UTF-8")));
        }
        Err(malformed(format!("the call has no text `{name}`")))
    }

    /// A text attribute of flags: `1` for present, `0` for absent.
    pub fn flags(&self, name: &str) -> Result<Vec<bool>, Failure> {
        Ok(self.text(name)?.bytes().map(|byte| byte == b'1').collect())
    }

    fn buffers(&self, list: &'a ffi::Buffers) -> Result<Vec<&'a ffi::Buffer>, Failure> {
        let count = usize::try_from(list.size).unwrap_or(0);
        let buffer = |index: usize| {
            // SAFETY: there are so many types and items.
            let (kind, item) = unsafe { (*list.types.add(index), *list.items.add(index)) };
            if kind != ffi::BUFFER {
                return Err(malformed(format!("operand {index} is no buffer")));
            }
            // SAFETY: the item of this type is a buffer, which lives as long as the frame.
            Ok(unsafe { &*item.cast::<ffi::Buffer>() })
        };
        (0..count).map(buffer).collect()
    }

    /// The arguments as arrays over their buffers. They must be gone when the call returns.
    pub fn arguments(&self, device: &Device) -> Result<Vec<Array>, Failure> {
        let array = |buffer: &ffi::Buffer| {
            let Target { address, dtype, shape } = described(buffer)?;
            let strides = gradewise_core::Shape::from(&shape[..]).contiguous_strides().to_vec();
            let owner = Box::new(());
            let borrowed =
                Borrowed { address, dtype, shape: &shape, strides: &strides, owner, is_known: true };
            // SAFETY: XLA's buffer, in row-major order as the call was lowered; nobody writes to it during the call, and on a device not
            // before the work that the call queues in XLA's stream.
            Ok(unsafe { Array::borrow(borrowed, device) }?)
        };
        self.buffers(&self.frame.arguments)?.into_iter().map(array).collect()
    }

    /// The buffers for the results.
    pub fn targets(&self) -> Result<Vec<Target>, Failure> {
        self.buffers(&self.frame.results)?.into_iter().map(described).collect()
    }

    /// The device of the call on a platform.
    pub fn device(&self, is_cuda: bool) -> Result<Device, Failure> {
        if !is_cuda {
            return Ok(Device::Cpu);
        }
        Ok(Device::Cuda(CudaDevice::new(self.runtime.ordinal()?)?))
    }
}

/// # Safety
/// The span must be of memory that lives as long as it.
unsafe fn bytes(span: &ffi::Span) -> &[u8] {
    if span.length == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(span.start, span.length) }
}

fn dtype(number: c_int) -> Option<DType> {
    match number {
        ffi::dtype::F64 => Some(DType::F64),
        ffi::dtype::F32 => Some(DType::F32),
        ffi::dtype::BF16 => Some(DType::BF16),
        ffi::dtype::F16 => Some(DType::F16),
        _ => None,
    }
}

fn described(buffer: &ffi::Buffer) -> Result<Target, Failure> {
    let Some(dtype) = dtype(buffer.dtype) else {
        let message = format!("a buffer has XLA's dtype {}, expected f64, f32, bf16 or f16", buffer.dtype);
        return Err(Failure { code: ffi::code::INVALID_ARGUMENT, message });
    };
    let rank = usize::try_from(buffer.rank).unwrap_or(0);
    // SAFETY: there are so many sizes, which live as long as the buffer's description.
    let sizes = if rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(buffer.dims, rank) } };
    let shape = sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    Ok(Target { address: buffer.data.expose_provenance() as u64, dtype, shape })
}

impl<E: Into<gradewise_autograd::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let code = match Class::of(&error) {
            Class::Argument | Class::Shape | Class::DType => ffi::code::INVALID_ARGUMENT,
            Class::Memory => ffi::code::RESOURCE_EXHAUSTED,
            Class::Device | Class::NotDifferentiable => ffi::code::FAILED_PRECONDITION,
            Class::Other => ffi::code::INTERNAL,
        };
        Self { code, message: error.to_string() }
    }
}
