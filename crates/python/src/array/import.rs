//! Import of arrays by DLPack.

use super::PyArray;
use crate::errors::{Class, raised};
use dlpark::{
    DlpackFlags,
    ffi::{
        DLDataType, DLDataTypeCode, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
        DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLTensor,
    },
};
use gradewise_core::DType;
use gradewise_ffi::{Event, Stream};
use gradewise_kernels::{Array, Borrowed, CudaDevice, Device};
use pyo3::{
    exceptions::PyTypeError,
    ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName},
    intern,
    prelude::*,
    types::PyDict,
};
use std::{ffi::CStr, ptr::NonNull};

/// The name of a capsule, and its name once its tensor is taken.
const VERSIONED: (&CStr, &CStr) = (c"dltensor_versioned", c"used_dltensor_versioned");
const UNVERSIONED: (&CStr, &CStr) = (c"dltensor", c"used_dltensor");

/// A tensor that another library lends until this value is dropped.
enum Managed {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: DLPack lets the deleter be called on any thread, with or without the interpreter's lock; nothing else is changed.
unsafe impl Send for Managed {}
// SAFETY: as above; a shared reference gives nothing but the description, which stays as it is.
unsafe impl Sync for Managed {}

impl Managed {
    /// Takes the tensor out of a capsule.
    fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = capsule.py();
        let take = |(name, used): (&CStr, &CStr)| {
            let raw = capsule.as_ptr();
            // SAFETY: the object is alive and the interpreter's lock is held; the function accepts any object.
            if unsafe { PyCapsule_IsValid(raw, name.as_ptr()) } == 0 {
                return Ok(None);
            }
            // SAFETY: a capsule of this name; the names are static, as a capsule needs.
            let (pointer, renamed) =
                unsafe { (PyCapsule_GetPointer(raw, name.as_ptr()), PyCapsule_SetName(raw, used.as_ptr())) };
            if renamed != 0 { Err(PyErr::fetch(py)) } else { Ok(NonNull::new(pointer)) }
        };
        if let Some(pointer) = take(VERSIONED)? {
            return Ok(Self::Versioned(pointer.cast()));
        }
        if let Some(pointer) = take(UNVERSIONED)? {
            return Ok(Self::Unversioned(pointer.cast()));
        }
        let message = "`__dlpack__` returned no capsule with a tensor, or one whose tensor was taken before";
        Err(Class::Argument.exception(py, message))
    }

    /// The DLPack version, if the capsule is versioned.
    fn version(&self) -> Option<(u32, u32)> {
        match self {
            // SAFETY: the tensor is lent until `self` is dropped; all versions have this field at this place.
            Self::Versioned(tensor) => unsafe {
                Some((tensor.as_ref().version.major, tensor.as_ref().version.minor))
            },
            Self::Unversioned(_) => None,
        }
    }

    /// The tensor. The version must be one that this library reads.
    fn tensor(&self) -> &DLTensor {
        // SAFETY: the tensor is lent until `self` is dropped.
        unsafe {
            match self {
                Self::Versioned(tensor) => &tensor.as_ref().dl_tensor,
                Self::Unversioned(tensor) => &tensor.as_ref().dl_tensor,
            }
        }
    }

    /// Whether its elements are read-only; an unversioned capsule cannot say so.
    fn is_read_only(&self) -> bool {
        match self {
            // SAFETY: as in `tensor`.
            Self::Versioned(tensor) => unsafe { tensor.as_ref().flags.contains(DlpackFlags::READ_ONLY) },
            Self::Unversioned(_) => false,
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the tensor is ours to give back, and this happens once.
        unsafe {
            match self {
                Self::Versioned(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
                Self::Unversioned(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
            }
        }
    }
}

/// Keeps a tensor of another library until work that reads it is done.
struct Lent {
    /// The device and the stream in which operators read it.
    place: Option<(CudaDevice, Stream)>,
    /// Released after [`Drop::drop`] has waited.
    _managed: Managed,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // DLPack cannot tell the producer which work its next use of the memory has to wait for. A failure of the driver surfaces at the
        // next operator.
        if let Some((device, stream)) = &self.place
            && let Ok(event) = Event::new(device.context(), false)
        {
            let _ = event.record(stream).and_then(|()| event.synchronize());
        }
    }
}

fn dtype(dtype: DLDataType) -> Option<DType> {
    match (dtype.code, dtype.bits, dtype.lanes) {
        (DLDataTypeCode::FLOAT, 64, 1) => Some(DType::F64),
        (DLDataTypeCode::FLOAT, 32, 1) => Some(DType::F32),
        (DLDataTypeCode::FLOAT, 16, 1) => Some(DType::F16),
        (DLDataTypeCode::BFLOAT, 16, 1) => Some(DType::BF16),
        _ => None,
    }
}

/// A DLPack dtype as text for messages.
fn described(DLDataType { code, bits, lanes }: DLDataType) -> String {
    let kind = match code {
        DLDataTypeCode::INT => "int",
        DLDataTypeCode::UINT => "uint",
        DLDataTypeCode::FLOAT => "float",
        DLDataTypeCode::BFLOAT => "bfloat",
        DLDataTypeCode::COMPLEX => "complex",
        DLDataTypeCode::BOOL => return "bool".to_owned(),
        _ => "dtype with the DLPack code ",
    };
    let code = if kind.ends_with(' ') { format!("{} and bits ", code.0) } else { String::new() };
    let lanes = if lanes == 1 { String::new() } else { format!("×{lanes}") };
    format!("{kind}{code}{bits}{lanes}")
}

/// The device of a DLPack device type and number.
fn device(py: Python<'_>, kind: u32, number: i32) -> PyResult<Device> {
    match DLDeviceType(kind) {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => Ok(Device::Cpu),
        DLDeviceType::CUDA => {
            let ordinal = usize::try_from(number).map_err(|_| {
                Class::Device.exception(py, &format!("there is no CUDA device of number {number}"))
            })?;
            CudaDevice::new(ordinal).map(Device::Cuda).map_err(|error| raised(py, error))
        }
        DLDeviceType(other) => {
            let name = match other {
                4 => "OpenCL",
                7 => "Vulkan",
                8 => "Metal",
                10 | 11 => "ROCm",
                13 => "CUDA managed memory",
                14 => "oneAPI",
                15 => "WebGPU",
                _ => "a device that gradewise does not know",
            };
            let message = format!(
                "the array is on {name} (DLPack device type {other}); gradewise computes on cpu and cuda"
            );
            Err(Class::Device.exception(py, &message))
        }
    }
}

/// An array over the memory of an object with `__dlpack__`, such as an array of NumPy, PyTorch, JAX or CuPy, without a copy.
///
/// On a CUDA device the producer orders its stream before ours.
///
/// Raises:
///     DTypeError: another dtype than float64, float32, bfloat16 and float16.
///     DeviceError: another device than the CPU and CUDA devices that this build has kernels for.
///     ShapeError: negative strides.
///     ArgumentError: no `__dlpack__`; an address that is not a multiple of the element's size.
#[pyfunction]
pub fn from_dlpack(object: &Bound<'_, PyAny>) -> PyResult<Py<PyArray>> {
    let py = object.py();
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(array.clone().unbind());
    }
    let Some(place) = object.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        let message =
            format!("{} has no `__dlpack__`, by which arrays come in", object.get_type().qualname()?);
        return Err(Class::Argument.exception(py, &message));
    };
    let (kind, number): (u32, i32) = place.call0()?.extract()?;
    let device = device(py, kind, number)?;
    let place = match &device {
        Device::Cpu => None,
        Device::Cuda(cuda) => Some((cuda.clone(), cuda.stream().clone())),
    };
    let stream = place.as_ref().map(|(_, stream)| stream.raw().0.expose_provenance());
    let managed = Managed::take(&asked(object, stream)?)?;
    if let Some((major, minor)) = managed.version().filter(|(major, _)| *major != DLPACK_MAJOR_VERSION) {
        let message =
            format!("the array comes by DLPack {major}.{minor}; gradewise reads {DLPACK_MAJOR_VERSION}.x");
        return Err(Class::Argument.exception(py, &message));
    }
    let read_only = managed.is_read_only();
    let description = Description::read(py, managed.tensor())?;
    let borrowed = Borrowed {
        address: description.address,
        dtype: description.dtype,
        shape: &description.shape,
        strides: &description.strides,
        owner: Box::new(Lent { place, _managed: managed }),
        is_known: false,
    };
    // SAFETY: DLPack's description of memory that the capsule kept and `Lent` keeps; the producer has ordered the work that writes it
    // before our stream. Whoever writes to it meanwhile does so at their own risk, as with all libraries that share memory.
    let array = unsafe { Array::borrow(borrowed, &device) }.map_err(|error| raised(py, error))?;
    Py::new(py, PyArray { array, read_only })
}

/// The capsule of an object, in the newest DLPack version that both sides support.
fn asked<'py>(object: &Bound<'py, PyAny>, stream: Option<usize>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "stream"), stream)?;
    arguments.set_item(intern!(py, "max_version"), (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION))?;
    let method = object.getattr(intern!(py, "__dlpack__"))?;
    match method.call((), Some(&arguments)) {
        // Producers from before DLPack 1.0 take no version.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item(intern!(py, "max_version"))?;
            method.call((), Some(&arguments))
        }
        result => result,
    }
}

/// A tensor's description, checked.
struct Description {
    address: u64,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Description {
    fn read(py: Python<'_>, tensor: &DLTensor) -> PyResult<Self> {
        let Some(dtype) = dtype(tensor.dtype) else {
            let message = format!(
                "the array has dtype {}, expected float64, float32, bfloat16 or float16; convert it first",
                described(tensor.dtype)
            );
            return Err(Class::DType.exception(py, &message));
        };
        let axes = usize::try_from(tensor.ndim).unwrap_or(0);
        let sizes = |pointer: *const i64| -> &[i64] {
            if axes == 0 || pointer.is_null() {
                return &[];
            }
            // SAFETY: DLPack's arrays of as many numbers as there are axes, which live as long as the tensor.
            unsafe { std::slice::from_raw_parts(pointer, axes) }
        };
        let (shape, strides) = (sizes(tensor.shape), sizes(tensor.strides));
        let refuse = |class: Class, what: &str| {
            let message =
                format!("the array has shape {shape:?} and strides {strides:?} in elements, {what}");
            Err(class.exception(py, &message))
        };
        if shape.len() != axes {
            return refuse(Class::Argument, &format!("for {axes} axes"));
        }
        let natural = |values: &[i64]| -> Option<Vec<usize>> {
            values.iter().map(|&value| usize::try_from(value).ok()).collect()
        };
        let Some(shape_read) = natural(shape) else { return refuse(Class::Shape, "with a negative size") };
        let strides_read = if strides.len() == axes {
            // The stride of an axis with one element or none is never used.
            let used = shape.iter().zip(strides).map(|(&size, &stride)| if size > 1 { stride } else { 0 });
            natural(&used.collect::<Vec<_>>())
        } else {
            // Before DLPack 1.2 none stood for adjacent elements in row-major order.
            let mut adjacent = vec![1usize; axes];
            for axis in (1..axes).rev() {
                adjacent[axis - 1] = adjacent[axis].saturating_mul(shape_read[axis].max(1));
            }
            Some(adjacent)
        };
        let Some(strides_read) = strides_read else {
            return refuse(Class::Shape, "where negative strides are not taken; copy it first");
        };
        let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
        Ok(Self { address, dtype, shape: shape_read, strides: strides_read })
    }
}
