//! The kernels of a device: found once, checked once.

use super::{CudaDevice, Kernel, image, rtc};
use crate::{Error, Result};
use gradewise_core::Signature;
use gradewise_ffi::{Function, Module, sys::function_attribute};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError, RwLock},
};

/// Shared memory of a block that needs no permission, in bytes.
const FREELY_SHARED: i32 = 48 << 10;

/// Kernels found so far, and the modules they are in.
#[derive(Default)]
pub(crate) struct Kernels {
    functions: RwLock<HashMap<Kernel, Function>>,
    /// Which kernels there are, as far as was asked.
    present: RwLock<HashMap<Kernel, bool>>,
    modules: Mutex<HashMap<String, Module>>,
    /// Algebras compiled at run time; `None` for those that could not be.
    algebras: Mutex<HashMap<Signature, Option<Compiled>>>,
}

/// The kernels of an algebra, by name.
struct Compiled {
    module: Module,
    names: Vec<String>,
}

impl Kernels {
    /// The kernel, ready to launch with parameters of these sizes.
    pub fn function(
        &self,
        device: &CudaDevice,
        operation: &'static str,
        kernel: Kernel,
        sizes: &[u16],
    ) -> Result<Function> {
        if let Some(function) = self.known(kernel) {
            return Ok(function);
        }
        let function = self.resolve(device, operation, kernel)?;
        require_parameters(&function, sizes).map_err(|error| device.error(operation, error))?;
        self.functions.write().unwrap_or_else(PoisonError::into_inner).insert(kernel, function.clone());
        Ok(function)
    }

    fn known(&self, kernel: Kernel) -> Option<Function> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&kernel).cloned()
    }

    /// The kernel, to be asked something.
    pub fn find(&self, device: &CudaDevice, operation: &'static str, kernel: Kernel) -> Result<Function> {
        self.known(kernel).map_or_else(|| self.resolve(device, operation, kernel), Ok)
    }

    /// Whether there is such a kernel. Asked at every call of an operator that has several, so the answer is kept.
    pub fn has(&self, device: &CudaDevice, kernel: &Kernel) -> bool {
        let known = self.present.read().unwrap_or_else(PoisonError::into_inner).get(kernel).copied();
        known.unwrap_or_else(|| {
            let found =
                self.embedded(&kernel.to_string()).is_some() || self.compiled(device, kernel).is_some();
            self.present.write().unwrap_or_else(PoisonError::into_inner).insert(*kernel, found);
            found
        })
    }

    fn embedded(&self, name: &str) -> Option<&'static image::Image> {
        image::IMAGES.iter().find(|image| image.kernels.contains(&name))
    }

    /// The module of a kernel of an algebra that was not compiled ahead, if it has that kernel.
    fn compiled(&self, device: &CudaDevice, kernel: &Kernel) -> Option<Module> {
        let signature = kernel.signature?;
        let Signature { p, q, r } = signature;
        let embedded = format!("sgp_{p}_{q}_{r}");
        // What is left out of an embedded algebra is left out for want of registers.
        if image::IMAGES.is_empty() || image::IMAGES.iter().any(|image| image.name == embedded) {
            return None;
        }
        let mut algebras = self.algebras.lock().unwrap_or_else(PoisonError::into_inner);
        let found = algebras.entry(signature).or_insert_with(|| {
            let module = rtc::module(device, signature)?;
            // Drivers before 12.4 cannot list kernels; they are asked for one by one then.
            let names = module.function_names().unwrap_or_default();
            Some(Compiled { module, names })
        });
        let Compiled { module, names } = found.as_ref()?;
        let name = kernel.to_string();
        let has = if names.is_empty() { module.function(&name).is_ok() } else { names.contains(&name) };
        has.then(|| module.clone())
    }

    fn resolve(&self, device: &CudaDevice, operation: &'static str, kernel: Kernel) -> Result<Function> {
        let name = kernel.to_string();
        let fail = |source| device.error(operation, source);
        if let Some(module) = self.compiled(device, &kernel) {
            let function = module.function(&name).map_err(fail)?;
            allow_shared(device, &function).map_err(fail)?;
            return Ok(function);
        }
        let Some(image) = self.embedded(&name) else {
            return Err(Error::NoKernel { operation, kernel: name });
        };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.get(image.name) {
            Some(module) => module.clone(),
            None => {
                let module = Module::load(device.context(), image.name, image.bytes).map_err(fail)?;
                modules.insert(image.name.to_owned(), module.clone());
                module
            }
        };
        let function = module.function(&name).map_err(fail)?;
        allow_shared(device, &function).map_err(fail)?;
        Ok(function)
    }
}

/// Lets the kernel use as much shared memory as the device gives to one block.
pub(crate) fn allow_shared(device: &CudaDevice, function: &Function) -> Result<(), gradewise_ffi::Error> {
    let fixed = function.attribute(function_attribute::SHARED_SIZE_BYTES)?;
    let most = device.info().max_shared_memory as i32 - fixed;
    if most > FREELY_SHARED { function.allow_shared(most as u32) } else { Ok(()) }
}

/// Refuses a kernel whose parameters are not what its launcher passes; fewer than it has are noticed in builds with debug assertions.
pub(crate) fn require_parameters(function: &Function, sizes: &[u16]) -> Result<(), gradewise_ffi::Error> {
    if cfg!(debug_assertions) {
        return require_all_parameters(function, sizes);
    }
    compare_parameters(function, function.first_parameter_sizes(sizes.len()), sizes)
}

/// Refuses a kernel whose parameters are not all of these sizes.
pub(crate) fn require_all_parameters(function: &Function, sizes: &[u16]) -> Result<(), gradewise_ffi::Error> {
    compare_parameters(function, function.parameter_sizes(), sizes)
}

fn compare_parameters(
    function: &Function,
    found: Result<Vec<usize>, gradewise_ffi::Error>,
    sizes: &[u16],
) -> Result<(), gradewise_ffi::Error> {
    match found {
        Ok(actual) if actual.iter().copied().eq(sizes.iter().map(|&size| usize::from(size))) => Ok(()),
        Ok(actual) => Err(gradewise_ffi::Error::Launch {
            kernel: format!("{}: parameters of {actual:?} bytes, arguments of {sizes:?}", function.name()),
            what: "number of arguments",
            actual: sizes.len() as u64,
            limit: actual.len() as u64,
        }),
        // Drivers before 12.4 cannot tell.
        Err(gradewise_ffi::Error::Symbol { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
