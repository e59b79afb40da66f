//! Export of arrays by DLPack.

use super::{PyArray, order};
use crate::errors::raised;
use dlpark::{
    DlpackFlags,
    ffi::{
        DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
        DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
    },
};
use gradewise_core::DType;
use gradewise_ffi::{Stream, sys::CUstream};
use gradewise_kernels::{Array, CudaDevice, Device};
use pyo3::{
    exceptions::PyBufferError,
    ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject},
    prelude::*,
};
use std::{
    ffi::{CStr, c_void},
    ptr,
};

/// What a consumer asks for.
pub struct Request {
    pub stream: Option<i64>,
    pub max_version: Option<(u32, u32)>,
    pub dl_device: Option<(u32, i32)>,
    pub copy: Option<bool>,
}

/// An array that a consumer holds through the DLPack struct `M`.
struct Exported<M> {
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// The device, the stream in which the consumer uses the array, and ours.
    streams: Option<(CudaDevice, Stream, Stream)>,
    /// Keeps the memory alive.
    _array: Array,
}

impl<M> Drop for Exported<M> {
    fn drop(&mut self) {
        // The memory returns to our pool in the order of our stream, so our stream first waits for the work that the consumer has queued. A
        // failure of the driver surfaces at the next operator.
        if let Some((device, theirs, ours)) = &self.streams {
            let _ = order(device, theirs, ours);
        }
    }
}

/// A struct of DLPack by which a consumer holds a tensor.
trait Holder: Sized {
    const NAME: &'static CStr;

    fn new(tensor: DLTensor, flags: DlpackFlags) -> Self;

    fn tensor(&mut self) -> &mut DLTensor;

    fn context(&mut self) -> &mut *mut c_void;

    /// Returns the tensor to the library that lent it.
    ///
    /// # Safety
    /// `held` must be a holder that a consumer got and that nobody uses any more.
    unsafe fn delete(held: *mut Self);
}

impl Holder for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn new(dl_tensor: DLTensor, flags: DlpackFlags) -> Self {
        let version = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
        let deleter = Some(release_versioned as unsafe extern "C" fn(*mut Self));
        Self { version, manager_ctx: ptr::null_mut(), deleter, flags, dl_tensor }
    }

    fn tensor(&mut self) -> &mut DLTensor {
        &mut self.dl_tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.manager_ctx
    }

    unsafe fn delete(held: *mut Self) {
        // SAFETY: as the caller says.
        unsafe {
            if let Some(deleter) = (*held).deleter {
                deleter(held);
            }
        }
    }
}

impl Holder for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";

    fn new(dl_tensor: DLTensor, _: DlpackFlags) -> Self {
        Self { dl_tensor, manager_ctx: ptr::null_mut(), deleter: Some(release_unversioned) }
    }

    fn tensor(&mut self) -> &mut DLTensor {
        &mut self.dl_tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.manager_ctx
    }

    unsafe fn delete(held: *mut Self) {
        // SAFETY: as the caller says.
        unsafe {
            if let Some(deleter) = (*held).deleter {
                deleter(held);
            }
        }
    }
}

/// # Safety
/// `held` must be what [`hold`] made, and is not used afterwards.
unsafe extern "C" fn release_versioned(held: *mut DLManagedTensorVersioned) {
    // SAFETY: as the caller says, the context is the box that `hold` let go of.
    drop(unsafe { Box::from_raw((*held).manager_ctx.cast::<Exported<DLManagedTensorVersioned>>()) });
}

/// # Safety
/// As [`release_versioned`].
unsafe extern "C" fn release_unversioned(held: *mut DLManagedTensor) {
    // SAFETY: as the caller says, the context is the box that `hold` let go of.
    drop(unsafe { Box::from_raw((*held).manager_ctx.cast::<Exported<DLManagedTensor>>()) });
}

/// The DLPack device of an array.
pub fn device(array: &Array) -> DLDevice {
    match array.device() {
        Device::Cpu => DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
        Device::Cuda(cuda) => DLDevice { device_type: DLDeviceType::CUDA, device_id: cuda.ordinal() as i32 },
    }
}

fn dtype(dtype: DType) -> DLDataType {
    let code = if dtype == DType::BF16 { DLDataTypeCode::BFLOAT } else { DLDataTypeCode::FLOAT };
    DLDataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// A capsule that meets a consumer's request.
pub fn capsule<'py>(py: Python<'py>, exported: &PyArray, request: &Request) -> PyResult<Bound<'py, PyAny>> {
    let refuse = |message: String| Err(PyBufferError::new_err(message));
    let here = device(&exported.array);
    let wanted = request.dl_device.unwrap_or((here.device_type.0, here.device_id));
    let moves = wanted != (here.device_type.0, here.device_id);
    if moves && wanted.0 != DLDeviceType::CPU.0 {
        return refuse(format!(
            "the array is on {}, and DLPack device {wanted:?} is asked for; move it with .to()",
            exported.array.device()
        ));
    }
    if moves && request.copy == Some(false) {
        return refuse(format!("the array is on {}: on the CPU it is a copy", exported.array.device()));
    }
    let is_copied = moves || request.copy == Some(true);
    let array = if moves {
        py.detach(|| exported.array.to_device(&Device::Cpu)).map_err(|error| raised(py, error))?
    } else if is_copied {
        py.detach(|| exported.array.copy()).map_err(|error| raised(py, error))?
    } else {
        exported.array.clone()
    };
    let read_only = exported.read_only && !is_copied;
    let streams = ordered(py, &array, request.stream)?;
    if request.max_version.is_some_and(|(major, _)| major >= 1) {
        let mut flags = DlpackFlags::empty();
        flags.set(DlpackFlags::READ_ONLY, read_only);
        flags.set(DlpackFlags::IS_COPIED, is_copied);
        return hold::<DLManagedTensorVersioned>(py, array, streams, flags);
    }
    if read_only {
        return refuse("the array is read-only, which only DLPack 1.0 and later can say".to_owned());
    }
    hold::<DLManagedTensor>(py, array, streams, DlpackFlags::empty())
}

/// Makes the consumer's stream wait for ours. Returns the device and both streams, for ordering them when the consumer is done.
fn ordered(
    py: Python<'_>,
    array: &Array,
    stream: Option<i64>,
) -> PyResult<Option<(CudaDevice, Stream, Stream)>> {
    let Device::Cuda(device) = array.device() else {
        return match stream {
            None | Some(-1) => Ok(None),
            Some(stream) => {
                Err(PyBufferError::new_err(format!("stream is {stream} for an array on the CPU; pass None")))
            }
        };
    };
    let address = match stream {
        // 1 and 2 are handles of the driver: the default stream, and the default stream of each thread.
        None => 1,
        Some(-1) => return Ok(None),
        Some(stream @ 1..) => stream as usize,
        Some(other) => {
            return Err(PyBufferError::new_err(format!(
                "stream is {other}; DLPack has −1, 1, 2 and addresses of streams"
            )));
        }
    };
    let raw = CUstream(ptr::with_exposed_provenance_mut(address));
    // SAFETY: by DLPack's protocol the stream is the consumer's and on this device; `__dlpack__` states how long it must live.
    let theirs = unsafe { Stream::borrow(device.context(), raw) };
    let ours = device.stream().clone();
    order(&device, &ours, &theirs).map_err(|source| {
        let launches = Default::default();
        let operation = "export by DLPack";
        raised(py, gradewise_kernels::Error::Cuda { operation, device: device.ordinal(), source, launches })
    })?;
    Ok(Some((device, theirs, ours)))
}

/// A capsule that owns an array until a consumer takes it over.
fn hold<M: Holder>(
    py: Python<'_>,
    array: Array,
    streams: Option<(CudaDevice, Stream, Stream)>,
    flags: DlpackFlags,
) -> PyResult<Bound<'_, PyAny>> {
    let signed = |values: &[usize]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
    let (shape, strides) = (signed(array.dims()), signed(array.strides()));
    let data = if array.elements() == 0 {
        ptr::null_mut()
    } else {
        ptr::with_exposed_provenance_mut(array.address() as usize)
    };
    let tensor = DLTensor {
        data,
        device: device(&array),
        ndim: array.rank() as i32,
        dtype: dtype(array.dtype()),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let exported = Box::into_raw(Box::new(Exported {
        managed: M::new(tensor, flags),
        shape,
        strides,
        streams,
        _array: array,
    }));
    // SAFETY: made above, and used by nobody else yet.
    let held = unsafe {
        let exported = &mut *exported;
        let (shape, strides) = (exported.shape.as_mut_ptr(), exported.strides.as_mut_ptr());
        let tensor = exported.managed.tensor();
        (tensor.shape, tensor.strides) = (shape, strides);
        ptr::from_mut(&mut exported.managed)
    };
    // SAFETY: as above; the context is where the deleter looks for the box.
    unsafe { *(*held).context() = exported.cast() };
    // SAFETY: the name is static, and the destructor takes what the capsule holds.
    let capsule = unsafe { PyCapsule_New(held.cast(), M::NAME.as_ptr(), Some(discard::<M>)) };
    if capsule.is_null() {
        // SAFETY: no capsule owns it, so it is released here.
        unsafe { M::delete(held) };
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference to a capsule.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

/// Capsule destructor: releases a tensor that no consumer took.
///
/// # Safety
/// As the interpreter calls it: a capsule that [`hold`] made.
unsafe extern "C" fn discard<M: Holder>(capsule: *mut PyObject) {
    // SAFETY: the capsule is alive while its destructor runs. A consumer that took the tensor has renamed it.
    unsafe {
        if PyCapsule_IsValid(capsule, M::NAME.as_ptr()) != 0 {
            M::delete(PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast());
        }
    }
}
