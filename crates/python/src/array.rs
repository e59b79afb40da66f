//! `gradewise.Array`: arrays that come and go by DLPack, without a copy.

mod export;
mod import;

use crate::{
    errors::{Class, raised},
    threads,
};
use gradewise_autograd::{Attributes, Prepared};
use gradewise_core::DType;
use gradewise_ffi::{Event, Stream};
use gradewise_kernels::{Array, CudaDevice, Device};
use pyo3::{
    exceptions::{PyAttributeError, PyTypeError},
    prelude::*,
    types::{PyDict, PyTuple},
};

pub use import::from_dlpack;

/// An array of float64, float32, bfloat16 or float16 on the CPU or on a CUDA device.
///
/// It shares memory with the object that it was made of (`gradewise.asarray`) and with those that are made of it
/// (`numpy.asarray(a)`, `torch.from_dlpack(a)`, `jax.dlpack.from_dlpack(a)`); whichever lives longest keeps the memory.
#[pyclass(frozen, weakref, name = "Array", module = "gradewise")]
pub struct PyArray {
    pub(crate) array: Array,
    /// Whether consumers may not write to the elements.
    read_only: bool,
}

/// The name of a dtype in Python's array libraries.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
    }
}

/// Makes `later` wait for the work queued in `earlier` so far.
fn order(device: &CudaDevice, earlier: &Stream, later: &Stream) -> gradewise_ffi::Result<()> {
    let event = Event::new(device.context(), false)?;
    event.record(earlier)?;
    later.wait(&event)
}

impl PyArray {
    /// The result of an operator. It shares its memory with nothing else, so consumers may write to it.
    pub fn result(array: Array) -> gradewise_kernels::Result<Self> {
        let own = array.is_unique() && !array.is_borrowed();
        Ok(Self { array: if own { array } else { array.copy()? }, read_only: false })
    }

    fn strides_in_bytes(&self) -> Vec<usize> {
        self.array.strides().iter().map(|stride| stride * self.array.dtype().size()).collect()
    }
}

#[pymethods]
impl PyArray {
    /// The sizes along the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.dims())
    }

    /// Distances in bytes between neighbours along each axis, as NumPy counts them.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.strides_in_bytes())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.elements()
    }

    /// The size of the elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.elements() * self.array.dtype().size()
    }

    /// "float64", "float32", "bfloat16" or "float16".
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype_name(self.array.dtype())
    }

    /// "cpu", or "cuda:0" with the number of the device.
    #[getter]
    fn device(&self) -> String {
        self.array.device().to_string()
    }

    /// Whether consumers may not write to the elements, as declared by the object that they came from.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// The array on a device, "cpu" or "cuda:0"; itself if it is there.
    ///
    /// Raises:
    ///     DeviceError: there is no such device, or this build has no kernels for it.
    fn to(slf: &Bound<'_, Self>, device: &str) -> PyResult<Py<Self>> {
        let py = slf.py();
        let device: Device = device.parse().map_err(|error: gradewise_kernels::Error| raised(py, error))?;
        let this = slf.get();
        if this.array.device() == device {
            return Ok(slf.clone().unbind());
        }
        let moved = py.detach(|| this.array.to_device(&device).and_then(Self::result));
        Py::new(py, moved.map_err(|error| raised(py, error))?)
    }

    /// The same values in memory of their own, adjacent in row-major order.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        let array = py.detach(|| self.array.copy()).map_err(|error| raised(py, error))?;
        Ok(Self { array, read_only: false })
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.array.dims().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array without axes has no length"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?;
        Ok(format!("gradewise.Array(shape={shape}, dtype={}, device={})", self.dtype(), self.device()))
    }

    /// The elements for NumPy, without a copy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let kind = match (self.array.dtype(), self.array.device()) {
            (_, Device::Cuda(_)) | (DType::BF16, _) => {
                // Reports the attribute as missing: NumPy then calls `__array__`, whose error says why.
                return Err(PyAttributeError::new_err("__array_interface__"));
            }
            (dtype, Device::Cpu) => format!("={}", format_args!("f{}", dtype.size())),
        };
        let little = if cfg!(target_endian = "little") { "<" } else { ">" };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", self.strides(py)?)?;
        interface.set_item("typestr", kind.replacen('=', little, 1))?;
        interface.set_item("data", (self.array.address(), self.read_only))?;
        Ok(interface)
    }

    /// Refuses what NumPy cannot show; arrays on the CPU with a dtype of NumPy's go by `__array_interface__`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if matches!(this.array.device(), Device::Cuda(_)) {
            let message = format!("the array is on {}; move it with .to(\"cpu\")", this.device());
            return Err(Class::Device.exception(py, &message));
        }
        if this.array.dtype() == DType::BF16 {
            let message =
                "NumPy has no bfloat16; torch.from_dlpack and jax.dlpack.from_dlpack take the array";
            return Err(Class::DType.exception(py, message));
        }
        let arguments = PyDict::new(py);
        arguments.set_item("dtype", dtype)?;
        if let Some(copy) = copy {
            arguments.set_item("copy", copy)?;
        }
        let numpy = py.import("numpy")?;
        let shown = numpy.call_method1("asarray", (slf,))?;
        numpy.call_method("array", (shown,), Some(&arguments))
    }

    /// (1, 0) on the CPU, (2, number) on a CUDA device.
    fn __dlpack_device__(&self) -> (u32, i32) {
        let device = export::device(&self.array);
        (device.device_type.0, device.device_id)
    }

    /// A DLPack capsule of the array, for the consumer that calls this.
    ///
    /// Args:
    ///     stream: on a CUDA device the consumer's stream: its address, 1 or None for the default stream, 2 for the per-thread default
    ///         stream, −1 if the consumer orders the streams. It must live as long as what the consumer makes of the capsule.
    ///     max_version: the newest version of DLPack that the consumer reads.
    ///     dl_device: the device on which the consumer wants the array.
    ///     copy: whether it must be, or must not be, a copy.
    ///
    /// Raises:
    ///     BufferError: the request cannot be met, such as that of an unversioned capsule of a read-only array.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        export::capsule(py, self, &export::Request { stream, max_version, dl_device, copy })
    }
}

/// Runs an operation of the registry on arrays of one device.
///
/// Args:
///     operation: its name, one of `gradewise.operations()`.
///     attributes: its attributes as JSON.
///     inputs: its inputs.
///
/// Returns:
///     The output, in memory of its own on the device of the inputs.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    operation: &str,
    attributes: &str,
    inputs: Vec<Bound<'_, PyArray>>,
) -> PyResult<PyArray> {
    let inputs: Vec<Array> = inputs.iter().map(|input| input.get().array.clone()).collect();
    let run = || {
        let attributes: Attributes = attributes.parse()?;
        let output = Prepared::new(operation, &attributes)?.forward(&inputs)?.output;
        Ok(PyArray::result(output)?)
    };
    py.detach(|| threads::within(0, run)).map_err(|error: gradewise_autograd::Error| raised(py, error))
}
