//! Tensors of PyTorch as arrays, and memory of PyTorch's allocators for results.

mod exchange;

use crate::errors::{Class, raised};
use exchange::{Described, Exchange};
use gradewise_core::DType;
use gradewise_ffi::sys::CUstream;
use gradewise_kernels::{
    Array, Borrowed, Compute, CudaDevice, Device,
    external::{Allocation, AllocationError, Allocator, Place, with_allocator},
};
use pyo3::{
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyTuple},
};
use std::{ffi::c_void, sync::Arc};

/// The attributes of the module `torch` that every call needs.
pub struct Torch {
    exchange: Option<Exchange>,
    empty: Py<PyAny>,
    uint8: Py<PyAny>,
    /// The arguments of `empty` for the host and for each device.
    places: [PyOnceLock<Py<PyDict>>; 65],
    /// The dtypes, in the order of [`DTYPES`].
    dtypes: Vec<Py<PyAny>>,
    /// Returns the stream that work of this thread goes to, for a device's number; none in a build of PyTorch without CUDA.
    stream: Option<Py<PyAny>>,
    /// Says whether products of float32 matrices may be computed in TF32.
    allow_tf32: Option<Py<PyAny>>,
    /// The settings of matrix products, for versions in which that query fails.
    matmul: Py<PyAny>,
}

const DTYPES: [(&str, DType); 4] =
    [("float32", DType::F32), ("float64", DType::F64), ("bfloat16", DType::BF16), ("float16", DType::F16)];

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// A tensor that keeps the memory of an array.
struct Memory(Py<PyAny>);

/// Where the tensors of a call are: the device, and the stream of PyTorch in force there.
pub struct Here {
    device: Device,
    stream: CUstream,
    /// How products of float32 matrices are computed, as PyTorch's own are.
    compute: Compute,
}

// SAFETY: the handle of a stream may be used on any thread; the driver synchronises.
unsafe impl Send for Here {}
// SAFETY: as above.
unsafe impl Sync for Here {}

impl Torch {
    /// The module, imported once.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            let dtypes = DTYPES.iter().map(|(name, _)| Ok(torch.getattr(*name)?.unbind()));
            let internals = torch.getattr("_C")?;
            let optional = |name: &str| internals.getattr(name).ok().map(Bound::unbind);
            Ok(Self {
                exchange: Exchange::of(&torch.getattr("Tensor")?),
                empty: torch.getattr("empty")?.unbind(),
                places: [const { PyOnceLock::new() }; 65],
                uint8: torch.getattr("uint8")?.unbind(),
                dtypes: dtypes.collect::<PyResult<_>>()?,
                stream: optional("_cuda_getCurrentRawStream"),
                allow_tf32: optional("_get_cublas_allow_tf32"),
                matmul: torch.getattr("backends")?.getattr("cuda")?.getattr("matmul")?.unbind(),
            })
        })
    }

    /// The arguments of `empty` for bytes at a place, made once for each.
    fn bytes_at<'py>(&'py self, py: Python<'py>, place: Place) -> PyResult<&'py Bound<'py, PyDict>> {
        let index = match place {
            Place::Host => 0,
            Place::Cuda(ordinal) => 1 + ordinal,
        };
        let make = || {
            let options = PyDict::new(py);
            options.set_item("dtype", self.uint8.bind(py))?;
            let name = match place {
                Place::Host => "cpu".to_owned(),
                Place::Cuda(ordinal) => format!("cuda:{ordinal}"),
            };
            options.set_item("device", name)?;
            Ok(options.unbind())
        };
        let Some(known) = self.places.get(index) else {
            let message = format!("cuda:{} is beyond the devices that are served", index - 1);
            return Err(Class::Device.exception(py, &message));
        };
        known.get_or_try_init(py, make).map(|options| options.bind(py))
    }

    /// Describes a tensor.
    fn describe(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Described> {
        if let Some(described) = self.exchange.as_ref().and_then(|exchange| exchange.describe(tensor)) {
            return Ok(described);
        }
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let known = self.dtypes.iter().position(|known| known.is(&dtype));
        Ok(Described {
            address: tensor.call_method0(intern!(py, "data_ptr"))?.extract()?,
            dtype: known.map(|index| DTYPES[index].1),
            device: tensor.call_method0(intern!(py, "get_device"))?.extract()?,
            shape: tensor.getattr(intern!(py, "shape"))?.extract()?,
            strides: tensor.call_method0(intern!(py, "stride"))?.extract()?,
        })
    }

    /// The place of the tensors, by the first one.
    pub fn here(&self, py: Python<'_>, tensors: &[Bound<'_, PyAny>]) -> PyResult<Here> {
        let cpu = Here { device: Device::Cpu, stream: CUstream::NULL, compute: Compute::Exact };
        let Some(first) = tensors.first() else { return Ok(cpu) };
        if !first.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            if first.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
                return Ok(cpu);
            }
            let device = first.getattr(intern!(py, "device"))?;
            let message = format!("a tensor is on {device}; gradewise computes on cpu and cuda");
            return Err(Class::Device.exception(py, &message));
        }
        let ordinal: usize = first.call_method0(intern!(py, "get_device"))?.extract()?;
        let device = CudaDevice::new(ordinal).map_err(|error| raised(py, error))?;
        let stream = match &self.stream {
            Some(stream) => stream.bind(py).call1((ordinal,))?.extract::<u64>()?,
            None => 0,
        };
        let stream = CUstream(std::ptr::with_exposed_provenance_mut::<c_void>(stream as usize));
        Ok(Here { device: Device::Cuda(device), stream, compute: self.compute(py)? })
    }

    fn compute(&self, py: Python<'_>) -> PyResult<Compute> {
        let answer = self.allow_tf32.as_ref().map(|ask| ask.bind(py).call0());
        let allowed = match answer {
            Some(Ok(answer)) => answer.is_truthy()?,
            // Reading the older setting fails once the newer one was used.
            _ => match self.matmul.bind(py).getattr(intern!(py, "fp32_precision")) {
                Ok(precision) => precision.extract::<String>()? == "tf32",
                Err(_) => false,
            },
        };
        Ok(if allowed { Compute::Tf32 } else { Compute::Exact })
    }

    /// A tensor as an array over the same memory.
    pub fn borrow(&self, here: &Here, tensor: &Bound<'_, PyAny>, argument: usize) -> PyResult<Array> {
        let py = tensor.py();
        let Described { address, dtype, device, shape, strides } = self.describe(tensor)?;
        let Some(dtype) = dtype else {
            let message = format!(
                "input {argument} has dtype {}, expected torch.float32, float64, bfloat16 or float16; convert it with .to()",
                tensor.getattr(intern!(py, "dtype"))?
            );
            return Err(Class::DType.exception(py, &message));
        };
        let expected = match &here.device {
            Device::Cpu => -1,
            Device::Cuda(device) => device.ordinal() as i64,
        };
        if device != expected {
            let message = format!(
                "input {argument} is on {}, and others on {}; move it with .to()",
                tensor.getattr(intern!(py, "device"))?,
                here.device
            );
            return Err(Class::Device.exception(py, &message));
        }
        let owner = Box::new(tensor.clone().unbind());
        let borrowed = Borrowed { address, dtype, shape: &shape, strides: &strides, owner, is_known: true };
        // SAFETY: PyTorch's description of its own memory, which the tensor keeps; PyTorch has queued the work that writes it in the
        // stream that operators run in. A user who writes to it on the CPU from another thread meanwhile does so at their own risk, as
        // with PyTorch's operators.
        unsafe { Array::borrow(borrowed, &here.device) }.map_err(|error| raised(py, error))
    }

    /// An array as [`own`] leaves it as a tensor.
    pub fn give<'py>(&self, py: Python<'py>, here: &Here, array: &Array) -> PyResult<Bound<'py, PyAny>> {
        let known = DTYPES.iter().position(|(_, dtype)| *dtype == array.dtype()).unwrap_or(0);
        let dtype = self.dtypes[known].bind(py);
        let shape = PyTuple::new(py, array.dims())?;
        let view = intern!(py, "view");
        if let Some(Memory(memory)) = memory(array) {
            return memory.bind(py).call_method1(view, (dtype,))?.call_method1(view, (shape,));
        }
        // An array without elements has no memory.
        let options = PyDict::new(py);
        options.set_item(intern!(py, "dtype"), dtype)?;
        options.set_item(intern!(py, "device"), here.device.to_string())?;
        self.empty.bind(py).call((shape,), Some(&options))
    }
}

/// The tensor that an array fills, in memory that PyTorch handed out for it.
fn memory(array: &Array) -> Option<&Memory> {
    let fills = array.storage_bytes() == array.elements() * array.dtype().size() && array.is_contiguous();
    array.owner().filter(|_| fills && !array.is_borrowed())?.downcast_ref()
}

/// Results for PyTorch, whose operators return tensors that share memory with no other result and no input. Copies the arrays that share
/// memory and passes the others on. Called inside [`Here::run`].
pub fn own(arrays: impl IntoIterator<Item = Array>) -> gradewise_kernels::Result<Vec<Array>> {
    let mut seen: Vec<u64> = Vec::new();
    let own = |array: Array| {
        if array.elements() > 0 && (memory(&array).is_none() || seen.contains(&array.address())) {
            return array.copy();
        }
        seen.push(array.address());
        Ok(array)
    };
    arrays.into_iter().map(own).collect()
}

impl Here {
    /// Runs `work` on this device: in the stream, and in memory of PyTorch's allocator.
    pub fn run<R, E: From<gradewise_kernels::Error>>(
        &self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let allocator: Arc<dyn Allocator> = Arc::new(Caching);
        match &self.device {
            Device::Cpu => with_allocator(allocator, work),
            Device::Cuda(device) => {
                // SAFETY: PyTorch never destroys its streams; what `work` makes in memory of the pool goes with its last array, before
                // this call returns.
                unsafe {
                    device.on_stream(self.stream, || with_allocator(allocator, || self.compute.scope(work)))
                }?
            }
        }
    }
}

/// PyTorch's allocators of the host and of devices: those that `torch.empty` uses.
struct Caching;

// SAFETY: a new tensor's memory is its own, aligned to 64 bytes on the host and to 512 on a device, and lives as long as the tensor; a
// device's allocator gives it again to work in the same stream alone, and to a graph under capture from the graph's own pool.
unsafe impl Allocator for Caching {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        Python::attach(|py| {
            let torch = Torch::get(py)?;
            let tensor = torch.empty.bind(py).call((bytes,), Some(torch.bytes_at(py, place)?))?;
            let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
            Ok(Allocation { address, owner: Box::new(Memory(tensor.unbind())) })
        })
        .map_err(|error: PyErr| error.to_string().into())
    }
}
