//! Tensors of PyTorch as arrays, and memory of PyTorch's allocators for results.

pub mod edges;
mod exchange;
mod fused;
mod memory;
pub mod parts;
mod view;

pub use fused::{Fused, Kind};
pub use view::View;

use crate::{
    errors::{Class, raised},
    threads,
};
use exchange::{Described, Exchange};
use gradewise_core::{DType, PerAxis};
use gradewise_ffi::sys::CUstream;
use gradewise_kernels::{
    Array, Borrowed, Compute, CudaDevice, Device,
    external::{Allocation, AllocationError, Allocator, Place, with_allocator},
};
use memory::{Layout, Memory};
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyDict};
use std::{ffi::c_void, sync::Arc};

/// The attributes of the module `torch` that every call needs.
pub struct Torch {
    exchange: Option<Exchange>,
    empty: Py<PyAny>,
    uint8: Py<PyAny>,
    int32: Py<PyAny>,
    /// The arguments of `empty` for the host and for each device.
    places: [PyOnceLock<Py<PyDict>>; 65],
    /// The dtypes, in the order of [`DTYPES`].
    dtypes: Vec<Py<PyAny>>,
    /// The classes of ordinary tensors and of parameters.
    classes: [Py<PyAny>; 2],
    /// Returns the stream that work of this thread goes to, for a device's number; none in a build of PyTorch without CUDA.
    stream: Option<Py<PyAny>>,
    /// Says whether products of float32 matrices may be computed in TF32.
    allow_tf32: Option<Py<PyAny>>,
    /// Returns the number of threads of operators on the host.
    threads: Py<PyAny>,
    /// The settings of matrix products, for versions in which that query fails.
    matmul: Py<PyAny>,
}

const DTYPES: [(&str, DType); 4] =
    [("float32", DType::F32), ("float64", DType::F64), ("bfloat16", DType::BF16), ("float16", DType::F16)];

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// The place of a dtype in [`DTYPES`].
fn position(dtype: DType) -> usize {
    DTYPES.iter().position(|(_, known)| *known == dtype).unwrap_or(0)
}

/// A tensor of bytes, made by `torch.empty`, that keeps the memory of an array.
struct Bytes(Py<PyAny>);

/// Where the tensors of a call are: the device, and the stream of PyTorch in force there.
pub struct Here {
    device: Device,
    stream: CUstream,
    /// The dtype of the first tensor, and of memory for results.
    dtype: DType,
    /// How products of float32 matrices are computed, as PyTorch's own are.
    compute: Compute,
    /// The threads that PyTorch's own operators use on the host.
    threads: usize,
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
            memory::find(py, &torch);
            let (tensor, parameter) = (torch.getattr("Tensor")?, torch.getattr("nn")?.getattr("Parameter")?);
            let optional = |name: &str| internals.getattr(name).ok().map(Bound::unbind);
            Ok(Self {
                exchange: Exchange::of(&tensor),
                empty: torch.getattr("empty")?.unbind(),
                places: [const { PyOnceLock::new() }; 65],
                uint8: torch.getattr("uint8")?.unbind(),
                int32: torch.getattr("int32")?.unbind(),
                dtypes: dtypes.collect::<PyResult<_>>()?,
                classes: [tensor.unbind(), parameter.unbind()],
                threads: torch.getattr("get_num_threads")?.unbind(),
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
            shape: tensor.getattr(intern!(py, "shape"))?.extract::<Vec<usize>>()?.into(),
            strides: tensor.call_method0(intern!(py, "stride"))?.extract::<Vec<usize>>()?.into(),
        })
    }

    /// The place of the tensors, by the first one.
    pub fn here(&self, py: Python<'_>, tensors: &[Bound<'_, PyAny>]) -> PyResult<Here> {
        let on_host = |dtype, threads| Here {
            device: Device::Cpu,
            stream: CUstream::NULL,
            dtype,
            compute: Compute::Exact,
            threads,
        };
        let Some(first) = tensors.first() else { return Ok(on_host(DType::F32, 0)) };
        let (ordinal, dtype) = match self.exchange.as_ref().and_then(|exchange| exchange.describe(first)) {
            Some(Described { device, dtype, .. }) => (usize::try_from(device).ok(), dtype),
            None if first.getattr(intern!(py, "is_cuda"))?.is_truthy()? => {
                let ordinal = first.call_method0(intern!(py, "get_device"))?.extract()?;
                (Some(ordinal), self.describe(first)?.dtype)
            }
            None if first.getattr(intern!(py, "is_cpu"))?.is_truthy()? => (None, None),
            None => {
                let device = first.getattr(intern!(py, "device"))?;
                let message = format!("a tensor is on {device}; gradewise computes on cpu and cuda");
                return Err(Class::Device.exception(py, &message));
            }
        };
        let dtype = dtype.unwrap_or(DType::F32);
        let Some(ordinal) = ordinal else {
            return Ok(on_host(dtype, self.threads.bind(py).call0()?.extract()?));
        };
        let device = CudaDevice::new(ordinal).map_err(|error| raised(py, error))?;
        let stream = match &self.stream {
            Some(stream) => stream.bind(py).call1((ordinal,))?.extract::<u64>()?,
            None => 0,
        };
        let stream = CUstream(std::ptr::with_exposed_provenance_mut::<c_void>(stream as usize));
        Ok(Here { device: Device::Cuda(device), stream, dtype, compute: self.compute(py)?, threads: 0 })
    }

    /// Where the elements of a tensor begin.
    pub fn address(&self, tensor: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.describe(tensor)?.address)
    }

    /// Whether these are ordinary tensors or parameters, of one dtype that is served, on the device of the first one.
    pub fn are_plain(&self, tensors: &[Bound<'_, PyAny>]) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let mut expected = None;
        tensors.iter().all(|tensor| {
            let class = tensor.get_type();
            let is_plain = self.classes.iter().any(|known| known.is(&class));
            let described = if is_plain { exchange.describe(tensor) } else { None };
            described.is_some_and(|Described { dtype, device, .. }| {
                dtype.is_some() && *expected.get_or_insert((dtype, device)) == (dtype, device)
            })
        })
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

    /// The address and the length of a contiguous list of 32-bit whole numbers.
    fn list(&self, tensor: &Bound<'_, PyAny>) -> PyResult<(u64, usize)> {
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let Described { address, shape, strides, .. } = self.describe(tensor)?;
        match (&shape[..], &strides[..]) {
            (&[length], &[stride]) if dtype.is(&self.int32) && (stride == 1 || length < 2) => {
                Ok((address, length))
            }
            _ => {
                let message = format!(
                    "a list of shape {shape:?} and dtype {dtype}, expected [n] of torch.int32, contiguous"
                );
                Err(Class::Shape.exception(py, &message))
            }
        }
    }

    /// A tensor as an array over the same memory.
    pub fn borrow(&self, here: &Here, tensor: &Bound<'_, PyAny>, argument: usize) -> PyResult<Array> {
        self.borrow_as(here, tensor, argument, View::Same)
    }

    /// A tensor as an array over the same memory, as `view` shows it.
    pub fn borrow_as(
        &self,
        here: &Here,
        tensor: &Bound<'_, PyAny>,
        argument: usize,
        view: View,
    ) -> PyResult<Array> {
        let py = tensor.py();
        let Described { address, dtype, device, mut shape, mut strides } = self.describe(tensor)?;
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
        if !view.apply(&mut shape, &mut strides) {
            let message = format!("input {argument} has shape {shape:?}, expected {}", view.expected());
            return Err(Class::Shape.exception(py, &message));
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
        let mut given = self.give_all(py, here, &[(array, View::Same)])?;
        given.pop().ok_or_else(|| Class::Other.exception(py, "an array gave no tensor"))
    }

    /// Arrays in memory of PyTorch as tensors, each with its axes as they were before its view.
    pub fn give_all<'py>(
        &self,
        py: Python<'py>,
        here: &Here,
        arrays: &[(&Array, View)],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (mut given, mut capsules) = (Vec::with_capacity(arrays.len()), Vec::with_capacity(arrays.len()));
        for (array, view) in arrays {
            let mut layout = Layout {
                shape: PerAxis::from(array.dims()),
                strides: PerAxis::from(array.strides()),
                offset: array.storage_offset(),
            };
            view.undo(&mut layout.shape, &mut layout.strides);
            let owner = array.owner().filter(|_| !array.is_borrowed() && array.elements() > 0);
            if let Some(memory) = owner.and_then(|owner| owner.downcast_ref::<Memory>())
                && memory.dtype() == array.dtype()
            {
                capsules.push(memory.show(py, &layout)?);
                given.push(None);
                continue;
            }
            let dtype = self.dtypes[position(array.dtype())].bind(py);
            given.push(Some(match owner {
                Some(owner) => {
                    let whole = if let Some(memory) = owner.downcast_ref::<Memory>() {
                        let elements = array.storage_bytes().div_ceil(memory.dtype().size());
                        memory.shown_as(py, dtype, elements)?
                    } else if let Some(Bytes(bytes)) = owner.downcast_ref() {
                        bytes.bind(py).call_method1(intern!(py, "view"), (dtype,))?
                    } else {
                        return Err(
                            Class::Other.exception(py, "a result is in memory that PyTorch does not know")
                        );
                    };
                    let Layout { shape, strides, offset } = layout;
                    whole.call_method1(intern!(py, "as_strided"), (&shape[..], &strides[..], offset))?
                }
                // An array without elements has no memory.
                None => {
                    let options = PyDict::new(py);
                    options.set_item(intern!(py, "dtype"), dtype)?;
                    options.set_item(intern!(py, "device"), here.device.to_string())?;
                    self.empty.bind(py).call((&layout.shape[..],), Some(&options))?
                }
            }));
        }
        let mut wrapped = memory::wrapped(py, capsules)?.into_iter();
        let missing = || Class::Other.exception(py, "an array gave no tensor");
        given.into_iter().map(|tensor| tensor.or_else(|| wrapped.next()).ok_or_else(missing)).collect()
    }
}

/// Whether an array is in memory that PyTorch handed out.
fn is_pytorchs(array: &Array) -> bool {
    let owner = array.owner().filter(|_| !array.is_borrowed());
    owner.is_some_and(|owner| owner.is::<Memory>() || owner.is::<Bytes>())
}

/// Results for PyTorch, whose operators return tensors that share memory with no other result and no input. Copies the arrays that share
/// memory and passes the others on. Called inside [`Here::run`].
pub fn own(arrays: impl IntoIterator<Item = Array>) -> gradewise_kernels::Result<Vec<Array>> {
    let mut seen: Vec<u64> = Vec::new();
    let own = |array: Array| {
        let fills = array.storage_bytes() == array.elements() * array.dtype().size() && array.is_contiguous();
        if array.elements() > 0 && (!is_pytorchs(&array) || !fills || seen.contains(&array.address())) {
            return array.copy();
        }
        seen.push(array.address());
        Ok(array)
    };
    arrays.into_iter().map(own).collect()
}

/// Results for a function of PyTorch's autograd, which may be parts of one piece of memory, but share no element. Copies the arrays that
/// overlap one before them or an input, and passes the others on. Called inside [`Here::run`].
pub fn apart(arrays: impl IntoIterator<Item = Array>) -> gradewise_kernels::Result<Vec<Array>> {
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let apart = |array: Array| {
        if array.elements() == 0 {
            return Ok(array);
        }
        let reach: usize =
            array.dims().iter().zip(array.strides()).map(|(size, stride)| (size - 1) * stride).sum();
        let (first, size) = (array.address(), array.dtype().size());
        let end = first + ((reach + 1) * size) as u64;
        if !is_pytorchs(&array) || taken.iter().any(|&(start, stop)| first < stop && start < end) {
            return array.copy();
        }
        taken.push((first, end));
        Ok(array)
    };
    arrays.into_iter().map(apart).collect()
}

impl Here {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs `work` on this device: in the stream, and in memory of PyTorch's allocator.
    pub fn run<R: Send, E: From<gradewise_kernels::Error> + Send>(
        &self,
        work: impl FnOnce() -> Result<R, E> + Send,
    ) -> Result<R, E> {
        let allocator: Arc<dyn Allocator> = Arc::new(Caching(self.dtype));
        match &self.device {
            Device::Cpu => threads::within(self.threads, || with_allocator(allocator, work)),
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

/// PyTorch's allocators of the host and of devices: those that `torch.empty` uses. Memory is made of elements of the dtype that most results
/// have, so that these are tensors without a conversion.
struct Caching(DType);

// SAFETY: a new tensor's memory is its own, aligned to 64 bytes on the host and to 512 on a device, and lives as long as the tensor; a
// device's allocator gives it again to work in the same stream alone, and to a graph under capture from the graph's own pool.
unsafe impl Allocator for Caching {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        if let Some(allocation) = memory::native().and_then(|native| native.allocate(place, bytes, self.0)) {
            return Ok(allocation);
        }
        // By the functions of Python, which say what is wrong if there is no memory.
        Python::attach(|py| {
            let torch = Torch::get(py)?;
            let tensor = torch.empty.bind(py).call((bytes,), Some(torch.bytes_at(py, place)?))?;
            let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
            Ok(Allocation { address, owner: Box::new(Bytes(tensor.unbind())) })
        })
        .map_err(|error: PyErr| error.to_string().into())
    }
}
