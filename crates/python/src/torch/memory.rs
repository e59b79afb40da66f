//! Memory of PyTorch's allocators, and tensors over it.
//!
//! PyTorch has stable functions in C for programs that it compiled ahead of time (`aoti_torch_…`). By these an allocation takes a fraction
//! of a microsecond and no interpreter, so that an operation with many intermediate results can run without the interpreter's lock. Where a
//! build of PyTorch lacks one of them, `torch.empty` serves.

use gradewise_core::{DType, PerAxis};
use gradewise_kernels::external::{Allocation, Place};
use pyo3::{ffi, intern, prelude::*, types::PyList};
use std::{
    ffi::{c_char, c_void},
    ptr,
    sync::OnceLock,
};

/// A tensor of PyTorch in C++.
type Handle = *mut c_void;
/// 0 for success.
type Status = i32;

type EmptyStrided = unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Status;
type DataPointer = unsafe extern "C" fn(Handle, *mut *mut c_void) -> Status;
type Reinterpret = unsafe extern "C" fn(Handle, i64, *const i64, *const i64, i64, *mut Handle) -> Status;
type Delete = unsafe extern "C" fn(Handle) -> Status;
type Code = unsafe extern "C" fn() -> i32;

/// PyTorch's functions in C.
pub struct Native {
    empty_strided: EmptyStrided,
    data_pointer: DataPointer,
    reinterpret: Reinterpret,
    delete: Delete,
    /// PyTorch's numbers for dtypes, in the order of [`DTYPES`](super::DTYPES).
    dtypes: [i32; 4],
    host: i32,
    cuda: i32,
    /// Makes Python objects of handles, which it takes over.
    wrap: Py<PyAny>,
}

static NATIVE: OnceLock<Option<Native>> = OnceLock::new();

/// The functions, if this build of PyTorch has them.
pub fn native() -> Option<&'static Native> {
    NATIVE.get()?.as_ref()
}

/// Looks the functions up, once.
pub fn find(py: Python<'_>, torch: &Bound<'_, PyModule>) {
    if NATIVE.get().is_none() {
        // One that is lacking leaves the functions of Python.
        let found = Native::of(py, torch).ok();
        NATIVE.get_or_init(|| found);
    }
}

impl Native {
    fn of(py: Python<'_>, torch: &Bound<'_, PyModule>) -> PyResult<Self> {
        let wrap =
            torch.getattr("_C")?.getattr("_aoti")?.getattr("alloc_tensors_by_stealing_from_void_ptrs")?;
        let (os, ctypes) = (py.import("os.path")?, py.import("ctypes")?);
        let folder = os.call_method1("dirname", (torch.getattr("__file__")?,))?;
        let path = os.call_method1("join", (folder, "lib", "libtorch_cpu.so"))?;
        // It is loaded already: this gives the library that PyTorch itself uses.
        let library = ctypes.getattr("CDLL")?.call1((path,))?;
        let (cast, pointer) = (ctypes.getattr("cast")?, ctypes.getattr("c_void_p")?);
        let find = |name: &str| -> PyResult<*const c_void> {
            let function = cast.call1((library.getattr(format!("aoti_torch_{name}"))?, &pointer))?;
            let address: usize = function.getattr("value")?.extract()?;
            Ok(ptr::with_exposed_provenance(address))
        };
        let code = |name: &str| -> PyResult<i32> {
            // SAFETY: the library's function of this name takes nothing and returns a 32-bit number.
            let code = unsafe { std::mem::transmute::<*const c_void, Code>(find(name)?) };
            // SAFETY: as above; it has no preconditions.
            Ok(unsafe { code() })
        };
        let dtypes =
            [code("dtype_float32")?, code("dtype_float64")?, code("dtype_bfloat16")?, code("dtype_float16")?];
        // SAFETY: the types are those that PyTorch's header `shim.h` declares for these names; it keeps them from version to version. The
        // addresses are not null, since `ctypes` found the symbols. The library is never unloaded: Python's modules are not.
        unsafe {
            Ok(Self {
                empty_strided: std::mem::transmute::<*const c_void, EmptyStrided>(find("empty_strided")?),
                data_pointer: std::mem::transmute::<*const c_void, DataPointer>(find("get_data_ptr")?),
                reinterpret: std::mem::transmute::<*const c_void, Reinterpret>(find("_reinterpret_tensor")?),
                delete: std::mem::transmute::<*const c_void, Delete>(find("delete_tensor_object")?),
                dtypes,
                host: code("device_type_cpu")?,
                cuda: code("device_type_cuda")?,
                wrap: wrap.unbind(),
            })
        }
    }

    fn code(&self, dtype: DType) -> i32 {
        self.dtypes[super::position(dtype)]
    }

    /// Elements of `dtype` that hold `bytes` bytes; `None` if PyTorch has no memory, of which it has said more on the standard error.
    pub fn allocate(&'static self, place: Place, bytes: usize, dtype: DType) -> Option<Allocation> {
        let (device, ordinal) = match place {
            Place::Host => (self.host, 0),
            Place::Cuda(ordinal) => (self.cuda, i32::try_from(ordinal).ok()?),
        };
        let sizes = [i64::try_from(bytes.div_ceil(dtype.size())).ok()?];
        let mut handle = ptr::null_mut();
        // SAFETY: one axis, whose size and stride are read before the call returns; the handle is written.
        let status = unsafe {
            (self.empty_strided)(
                1,
                sizes.as_ptr(),
                [1i64].as_ptr(),
                self.code(dtype),
                device,
                ordinal,
                &raw mut handle,
            )
        };
        let memory = (status == 0).then_some(Memory { handle, dtype, native: self })?;
        let mut address = ptr::null_mut();
        // SAFETY: the handle is alive; the pointer is written.
        let status = unsafe { (self.data_pointer)(memory.handle, &raw mut address) };
        let address = address.expose_provenance() as u64;
        (status == 0).then(|| Allocation { address, owner: Box::new(memory) })
    }
}

/// A tensor of one axis that PyTorch made for an array.
pub struct Memory {
    handle: Handle,
    dtype: DType,
    native: &'static Native,
}

// SAFETY: the handle owns a counted reference to a tensor, whose count is atomic; no thread changes the tensor itself.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the handle.
        unsafe { (self.native.delete)(self.handle) };
    }
}

/// Where the elements of a tensor lie in its memory, in elements.
pub struct Layout {
    pub shape: PerAxis,
    pub strides: PerAxis,
    pub offset: usize,
}

impl Memory {
    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Another tensor over this memory, of the same dtype: not a view to autograd, but one with a history of its own. As a capsule for
    /// [`wrapped`].
    pub fn show<'py>(&self, py: Python<'py>, layout: &Layout) -> PyResult<Bound<'py, PyAny>> {
        // PyTorch's numbers are signed, and of the same size.
        const { assert!(size_of::<usize>() == size_of::<i64>()) };
        let numbers = |numbers: &PerAxis| numbers.as_ptr().cast::<i64>();
        let mut handle = ptr::null_mut();
        // SAFETY: as many sizes and strides as axes, read before the call returns, none of them beyond what can be addressed; the handle is
        // alive, and the new one is written. The array that is shown lies within its storage.
        let status = unsafe {
            (self.native.reinterpret)(
                self.handle,
                layout.shape.len() as i64,
                numbers(&layout.shape),
                numbers(&layout.strides),
                layout.offset as i64,
                &raw mut handle,
            )
        };
        if status != 0 {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
                "PyTorch cannot show memory of {} as a tensor of shape {:?}",
                self.dtype, layout.shape
            )));
        }
        const NO_NAME: *const c_char = ptr::null();
        // SAFETY: this thread is attached to the interpreter; the handle is not null. The capsule has no destructor: `wrapped` passes it to
        // PyTorch, which takes the handle over.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(handle, NO_NAME, None)) }
    }

    /// All of this memory as a tensor of another dtype.
    pub fn shown_as<'py>(
        &self,
        py: Python<'py>,
        dtype: &Bound<'py, PyAny>,
        elements: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let one = |number| PerAxis::from_elem(number, 1);
        let layout = Layout { shape: one(elements), strides: one(1), offset: 0 };
        let whole = wrapped(py, vec![self.show(py, &layout)?])?;
        let tensor = whole.into_iter().next();
        let tensor =
            tensor.ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("PyTorch made no tensor"))?;
        tensor.call_method1(intern!(py, "view"), (dtype,))
    }
}

/// The tensors of Python for capsules that [`Memory::show`] made, in one call.
pub fn wrapped<'py>(py: Python<'py>, capsules: Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let Some(native) = native().filter(|_| !capsules.is_empty()) else { return Ok(Vec::new()) };
    let tensors = native.wrap.bind(py).call1((PyList::new(py, capsules)?,))?;
    tensors.try_iter()?.collect()
}
