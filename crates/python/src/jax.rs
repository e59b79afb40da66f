//! Operations as foreign functions of XLA, which JAX calls: forward, backward, and backward once more, on CPUs and CUDA devices.
//!
//! Text attributes of each call: `operation` and `attributes` (JSON). Arguments and results:
//!
//! - forward: the inputs; the output.
//! - backward: the inputs, the output, its gradient; the gradients of the inputs for which `needs` has a 1.
//! - backward_twice: the inputs, the gradient of the output, gradients of those gradients for which `given` has a 1; gradients of the inputs
//!   for which `needs` has a 1, and of the gradient of the output if `needs` ends with one more 1.

mod alignment;
mod call;
mod ffi;
mod memory;
mod runtime;

use crate::{errors::raised, threads};
use call::Call;
use ffi::{CallFrame, Handler};
use gradewise_autograd::Prepared;
use gradewise_core::{DType, Shape};
use gradewise_ffi::sys::CUstream;
use gradewise_kernels::{Array, Device, external::with_allocator};
use memory::{Lending, Memory};
use pyo3::{ffi as python, prelude::*};
use std::{
    collections::HashMap,
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    message: String,
}

/// The minor version of the runtime's interface.
static MINOR: AtomicI32 = AtomicI32::new(0);

/// The pass that a call asks for.
#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Backward,
    BackwardTwice,
}

/// The operation of a name with attributes. It is cached, because a compiled program calls it repeatedly.
fn prepared(operation: &str, attributes: &str) -> Result<Prepared, Failure> {
    const MOST: usize = 1024;
    static PREPARED: Mutex<Option<HashMap<(String, String), Prepared>>> = Mutex::new(None);
    let mut lock = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock.get_or_insert_default();
    let key = (operation.to_owned(), attributes.to_owned());
    if let Some(found) = known.get(&key) {
        return Ok(found.clone());
    }
    let made = Prepared::new(operation, &attributes.parse()?)?;
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(key, made.clone());
    Ok(made)
}

/// The results of a pass.
fn computed(
    pass: Pass,
    call: &Call<'_>,
    operation: &Prepared,
    mut arguments: Vec<Array>,
) -> Result<Vec<Option<Array>>, Failure> {
    let missing = || Failure { code: ffi::code::INTERNAL, message: "arguments are missing".to_owned() };
    match pass {
        Pass::Forward => Ok(vec![Some(operation.forward(&arguments)?.output)]),
        Pass::Backward => {
            let needs = call.flags("needs")?;
            let grad = arguments.pop().ok_or_else(missing)?;
            let output = arguments.pop().ok_or_else(missing)?;
            let gradients = operation.backward(&arguments, &output, None, &grad, &needs)?;
            Ok(gradients
                .into_iter()
                .zip(needs)
                .filter(|(_, needs)| *needs)
                .map(|(gradient, _)| gradient)
                .collect())
        }
        Pass::BackwardTwice => {
            let (given, mut needs) = (call.flags("given")?, call.flags("needs")?);
            let needs_grad = needs.pop().ok_or_else(missing)?;
            if arguments.len() <= given.len() {
                return Err(missing());
            }
            let mut rest = arguments.split_off(given.len()).into_iter();
            let grad = rest.next().ok_or_else(missing)?;
            let gradients: Vec<Option<Array>> =
                given.iter().map(|given| if *given { rest.next() } else { None }).collect();
            let (inputs, of_grad) =
                operation.backward_twice(&arguments, &grad, &gradients, &needs, needs_grad)?;
            let wanted = inputs.into_iter().zip(needs).chain([(of_grad, needs_grad)]);
            Ok(wanted.filter(|(_, needs)| *needs).map(|(gradient, _)| gradient).collect())
        }
    }
}

/// Runs the pass that a call asks for.
fn work(pass: Pass, is_cuda: bool, call: &Call<'_>) -> Result<(), Failure> {
    let device = call.device(is_cuda)?;
    let operation = prepared(call.text("operation")?, call.text("attributes")?)?;
    let run = || {
        let memory = Memory::new(call.targets()?, call.runtime);
        let compute = || computed(pass, call, &operation, call.arguments(&device)?);
        let results = with_allocator(Arc::new(Lending(Arc::clone(&memory))), compute)?;
        memory.finish(results, &device)
    };
    match &device {
        Device::Cpu => threads::within(0, run),
        Device::Cuda(cuda) => {
            let stream = CUstream(call.runtime.stream()?);
            // SAFETY: XLA's stream of this device, which lives as long as the client; the arrays that are made are gone when this returns.
            unsafe { cuda.on_stream(stream, run) }?
        }
    }
}

/// The handler of a pass on a platform.
///
/// # Safety
/// As XLA calls it.
unsafe fn handle(pass: Pass, is_cuda: bool, frame: *mut CallFrame) -> *mut ffi::Error {
    // SAFETY: as the caller says, a frame during a call.
    let frame = unsafe { &*frame };
    // SAFETY: an extension is there or it is null.
    if let Some(extension) = unsafe { frame.extension.as_ref() }
        && extension.kind == ffi::METADATA
    {
        // SAFETY: an extension of this kind is such a struct, whose metadata the runtime has for us to write; the runtime's version is in the
        // part of its functions that does not change.
        unsafe {
            let metadata = (*frame.extension.cast::<ffi::MetadataExtension>()).metadata;
            // Structs grow only at their end and state their sizes, so any minor version is compatible: reports the runtime's own.
            let api = frame.api.as_ref().filter(|api| api.version.major == ffi::MAJOR);
            let minor = api.map_or_else(|| MINOR.load(Ordering::Relaxed), |api| api.version.minor);
            let version = &mut (*metadata).api_version;
            (version.major, version.minor) = (ffi::MAJOR, minor);
            (*metadata).traits = 0;
        }
        return ptr::null_mut();
    }
    // SAFETY: as the caller says.
    let run = || work(pass, is_cuda, &unsafe { Call::new(frame) }?);
    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure { code: ffi::code::INTERNAL, message: format!("gradewise panicked: {said}") })
    });
    match outcome {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the runtime's functions.
        Err(failure) => unsafe { call::error(frame.api, &failure) },
    }
}

macro_rules! handlers {
    ($($name:ident = ($pass:ident, $is_cuda:literal);)*) => {$(
        /// # Safety
        /// As [`handle`].
        unsafe extern "C" fn $name(frame: *mut CallFrame) -> *mut ffi::Error {
            // SAFETY: as the caller says.
            unsafe { handle(Pass::$pass, $is_cuda, frame) }
        }
    )*};
}

handlers! {
    forward_cpu = (Forward, false);
    forward_cuda = (Forward, true);
    backward_cpu = (Backward, false);
    backward_cuda = (Backward, true);
    backward_twice_cpu = (BackwardTwice, false);
    backward_twice_cuda = (BackwardTwice, true);
}

/// The handlers for JAX: the name of the target, the platform, and a capsule with the function.
///
/// Args:
///     minor: the minor version of the runtime's interface, for runtimes that do not tell handlers.
#[pyfunction]
pub fn jax_handlers(
    py: Python<'_>,
    minor: c_int,
) -> PyResult<Vec<(&'static str, &'static str, Bound<'_, PyAny>)>> {
    MINOR.store(minor, Ordering::Relaxed);
    let handlers: [(&str, &str, Handler); 6] = [
        ("gradewise_forward", "cpu", forward_cpu),
        ("gradewise_forward", "CUDA", forward_cuda),
        ("gradewise_backward", "cpu", backward_cpu),
        ("gradewise_backward", "CUDA", backward_cuda),
        ("gradewise_backward_twice", "cpu", backward_twice_cpu),
        ("gradewise_backward_twice", "CUDA", backward_twice_cuda),
    ];
    let capsule = |handler: Handler| {
        // SAFETY: a capsule without a name, as jax.ffi.pycapsule makes them, of a function, which lives as long as the process.
        let capsule = unsafe { python::PyCapsule_New(handler as *mut _, ptr::null(), None) };
        if capsule.is_null() {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: a new reference.
        Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
    };
    handlers.into_iter().map(|(name, platform, handler)| Ok((name, platform, capsule(handler)?))).collect()
}

/// The shape of an operation's output, by the shapes of its inputs.
///
/// Args:
///     operation: its name.
///     attributes: its attributes as JSON.
///     shapes: the shapes of its inputs.
///     rows: for each input, whether its second axis is that of the rows, as in features. The output has it, too.
///
/// Raises:
///     ShapeError, ArgumentError: what the operation refuses.
#[pyfunction]
pub fn output_shape(
    py: Python<'_>,
    operation: &str,
    attributes: &str,
    shapes: Vec<Vec<usize>>,
    rows: Vec<bool>,
) -> PyResult<Vec<usize>> {
    let row_count = |(shape, has): (&Vec<usize>, &bool)| has.then(|| shape.get(1).copied()).flatten();
    let counts: Vec<usize> = shapes.iter().zip(&rows).filter_map(row_count).collect();
    let agree = counts.windows(2).all(|pair| pair[0] == pair[1]);
    let run = |without_rows: bool| {
        // One element, broadcast.
        let element = Array::zeros(Shape::scalar(), DType::F64, &Device::Cpu)?;
        let inputs = shapes.iter().zip(&rows).map(|(shape, has_rows)| {
            let mut shape = shape.clone();
            if let Some(rows) = shape.get_mut(1).filter(|_| *has_rows && without_rows) {
                *rows = 0;
            }
            element.broadcast_to(&shape[..])
        });
        let inputs = inputs.collect::<gradewise_kernels::Result<Vec<_>>>()?;
        Ok(Prepared::new(operation, &attributes.parse()?)?.forward(&inputs)?.output.dims().to_vec())
    };
    let shape = py.detach(|| {
        let result: gradewise_autograd::Result<Vec<usize>> = run(agree);
        match result {
            Ok(mut shape) => {
                if let (Some(rows), Some(&count)) = (shape.get_mut(1), counts.first()) {
                    *rows = count;
                }
                Ok(shape)
            }
            // The text should have the shapes that were given.
            Err(error) if agree => run(false).and(Err(error)),
            Err(error) => Err(error),
        }
    });
    shape.map_err(|error| raised(py, error))
}
