//! The kernels of a device: found once, checked once.

use super::{
    failure::failed,
    image,
    kernel::{Kernel, KernelId},
    rtc,
};
use crate::{
    Error, Result,
    runtime::growing::{Growing, Table},
};
use gradewise_core::Signature;
use gradewise_ffi::{Context, Function, Module, sys::function_attribute};
use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Shared memory of a block that needs no permission, in bytes.
const FREELY_SHARED: i32 = 48 << 10;

/// A variable that compute-sanitizer sets in the processes that it watches.
const SANITIZED: &str = "NV_SANITIZER_INJECTION_TRANSPORT_TYPE";

/// Kernels found so far, and the modules they are in.
#[derive(Default)]
pub(crate) struct Kernels {
    functions: Growing<KernelId, Function>,
    /// Which kernels there are, as far as was asked.
    present: Growing<KernelId, bool>,
    /// How they are launched, as far as was asked.
    launches: Growing<KernelId, Option<image::Launch>>,
    modules: Mutex<HashMap<&'static str, Module>>,
    /// Algebras compiled at run time; `None` for those that could not be.
    algebras: Mutex<HashMap<Signature, Option<Compiled>>>,
    /// Stands in for the embedded kernels, of which a build without CUDA has none.
    #[cfg(test)]
    stand_ins: std::sync::OnceLock<Module>,
}

/// The kernels of an algebra, by name.
struct Compiled {
    module: Module,
    names: Vec<String>,
}

impl Kernels {
    /// The kernels that have been launched before, by their ids: ready to launch again.
    pub fn resolved(&self) -> impl Deref<Target = Arc<Table<KernelId, Function>>> {
        self.functions.read()
    }

    /// The kernel, ready to launch with parameters of these sizes.
    pub fn function(
        &self,
        context: &Context,
        operation: &'static str,
        kernel: Kernel,
        sizes: &[usize],
    ) -> Result<Function> {
        if let Some(function) = self.functions.get(&kernel.id()) {
            return Ok(function);
        }
        let function = self.resolve(context, operation, kernel)?;
        require_parameters(&function, sizes)
            .map_err(|error| failed(operation, context.info().ordinal)(error))?;
        Ok(self.functions.add(kernel.id(), function))
    }

    /// The kernel, to be asked something.
    pub fn find(&self, context: &Context, operation: &'static str, kernel: Kernel) -> Result<Function> {
        self.functions.get(&kernel.id()).map_or_else(|| self.resolve(context, operation, kernel), Ok)
    }

    /// Whether there is such a kernel. Asked at every call of an operator that has several, so the answer is kept.
    pub fn has(&self, context: &Context, kernel: &Kernel) -> bool {
        self.present.get_or_make(kernel.id(), || {
            self.embedded(&kernel.to_string()).is_some() || self.compiled(context, kernel).is_some()
        })
    }

    /// How a kernel of the table of launches is launched; `None` without such a kernel. Asked at every call, so the answer is kept.
    pub fn launch(&self, kernel: &Kernel) -> Option<image::Launch> {
        self.launches.get_or_make(kernel.id(), || image::launch(&kernel.to_string()))
    }

    /// Resolves kernels in `module` alone from now on.
    #[cfg(test)]
    pub fn adopt(&self, module: Module) {
        self.stand_ins.get_or_init(|| module);
    }

    fn embedded(&self, name: &str) -> Option<&'static image::Image> {
        image::IMAGES.iter().find(|image| image.kernels.contains(&name))
    }

    /// The module of a kernel of an algebra that was not compiled ahead, if it has that kernel.
    fn compiled(&self, context: &Context, kernel: &Kernel) -> Option<Module> {
        let signature = kernel.signature?;
        let Signature { p, q, r } = signature;
        let embedded = format!("sgp_{p}_{q}_{r}");
        // What is left out of an embedded algebra is left out for want of registers.
        if image::IMAGES.is_empty() || image::IMAGES.iter().any(|image| image.name == embedded) {
            return None;
        }
        let mut algebras = self.algebras.lock().unwrap_or_else(PoisonError::into_inner);
        let found = algebras.entry(signature).or_insert_with(|| {
            let module = rtc::module(context, signature)?;
            // Drivers before 12.4 cannot list kernels; they are asked for one by one then.
            let names = module.function_names().unwrap_or_default();
            Some(Compiled { module, names })
        });
        let Compiled { module, names } = found.as_ref()?;
        let name = kernel.to_string();
        let has = if names.is_empty() { module.function(&name).is_ok() } else { names.contains(&name) };
        has.then(|| module.clone())
    }

    fn resolve(&self, context: &Context, operation: &'static str, kernel: Kernel) -> Result<Function> {
        let name = kernel.to_string();
        let fail = failed(operation, context.info().ordinal);
        #[cfg(test)]
        if let Some(module) = self.stand_ins.get() {
            return module.function(&name).map_err(&fail);
        }
        if let Some(module) = self.compiled(context, &kernel) {
            let function = module.function(&name).map_err(&fail)?;
            allow_shared(context, &function).map_err(&fail)?;
            return Ok(function);
        }
        let Some(image) = self.embedded(&name) else {
            return Err(Error::NoKernel { operation, kernel: name });
        };
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.get(image.name) {
            Some(module) => module.clone(),
            None => {
                let module = Module::load(context, image.name, image.bytes).map_err(&fail)?;
                modules.insert(image.name, module.clone());
                module
            }
        };
        let function = module.function(&name).map_err(&fail)?;
        allow_shared(context, &function).map_err(&fail)?;
        Ok(function)
    }
}

/// Lets the kernel use as much shared memory as the device gives to one block.
pub(crate) fn allow_shared(context: &Context, function: &Function) -> Result<(), gradewise_ffi::Error> {
    let fixed = function.attribute(function_attribute::SHARED_SIZE_BYTES)?;
    let most = context.info().max_shared_memory as i32 - fixed;
    if most > FREELY_SHARED { function.allow_shared(most as u32) } else { Ok(()) }
}

/// Refuses a kernel whose parameters are not all of these sizes. That there are no more takes a query that fails, which compute-sanitizer
/// reports: under it, only as many as there are sizes are compared.
pub(crate) fn require_parameters(function: &Function, sizes: &[usize]) -> Result<(), gradewise_ffi::Error> {
    static IS_SANITIZED: LazyLock<bool> = LazyLock::new(|| std::env::var_os(SANITIZED).is_some());
    let found =
        if *IS_SANITIZED { function.first_parameter_sizes(sizes.len()) } else { function.parameter_sizes() };
    match found {
        Ok(actual) if actual.iter().copied().eq(sizes.iter().copied()) => Ok(()),
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
