//! Generated kernels, compiled by NVRTC, kept on disk, and ready to launch.

#[cfg(test)]
pub(crate) mod tests;

use super::{CudaDevice, Key, rtc};
use crate::{DType, Result};
use gradewise_ffi::{Function, Module};
use rayon::prelude::*;
use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The type of elements in memory, in CUDA C++.
pub(crate) const fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::BF16 => "bf16",
        DType::F16 => "f16",
    }
}

/// A kernel in CUDA C++.
#[derive(Clone)]
pub(crate) struct Code {
    /// The name of the kernel, and of the file in messages.
    pub name: String,
    pub text: String,
}

impl Code {
    /// The kernel with these parameters and this body, which may use what is in `header`. Its name begins with `family`, and is another for
    /// each text.
    pub fn new(family: &str, header: &str, threads: u32, parameters: &str, body: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (header, threads, parameters, body).hash(&mut hasher);
        let name = format!("{family}_{:016x}", hasher.finish());
        let text = format!(
            "{header}extern \"C\" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{\n\
             begin_kernel();\n{body}}}\n"
        );
        Self { name, text }
    }
}

/// The generated kernels of a device, by their text. `None` for one that cannot be had.
#[derive(Default)]
pub(crate) struct Library(Mutex<HashMap<String, Option<Function>>>);

/// Whether there is a compiler for kernels.
pub(crate) fn has_compiler() -> bool {
    rtc::compiler().is_ok()
}

impl Library {
    pub fn of(device: &CudaDevice) -> Result<Arc<Self>> {
        device.constant(Key::Device, || Ok(Self::default()))
    }

    fn kernels(&self) -> MutexGuard<'_, HashMap<String, Option<Function>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel, once it is compiled; `None` within if it cannot be had.
    pub fn find(&self, code: &Code) -> Option<Option<Function>> {
        self.kernels().get(&code.text).cloned()
    }

    /// Keeps a kernel, or that it cannot be had. Threads that ask for it at once each compile it; the first that is loaded stays, because
    /// captured graphs launch it and a module goes with its last handle.
    pub(super) fn keep(&self, code: &Code, function: Option<Function>) {
        let mut kernels = self.kernels();
        let kept = kernels.entry(code.text.clone()).or_default();
        if kept.is_none() {
            *kept = function;
        }
    }

    /// The kernel, compiled if it is asked for the first time; `None` if it cannot be had.
    pub fn get(&self, device: &CudaDevice, code: &Code) -> Option<Function> {
        if let Some(found) = self.find(code) {
            return found;
        }
        if !has_compiler() {
            return None;
        }
        self.compile(device, &[code]);
        self.find(code).flatten()
    }

    /// Compiles what is missing, several at a time, and loads it.
    pub fn compile(&self, device: &CudaDevice, codes: &[&Code]) {
        let started = std::time::Instant::now();
        let mut seen = HashSet::new();
        let missing: Vec<&Code> = codes
            .iter()
            .copied()
            .filter(|code| self.find(code).is_none() && seen.insert(code.text.as_str()))
            .collect();
        let architecture = rtc::architecture(device.context());
        let compile = |code: &&Code| -> std::result::Result<Vec<u8>, String> {
            let compiler = rtc::compiler().map_err(|error| error.to_string())?;
            let file = format!("{}.cu", code.name);
            rtc::compile_source(compiler, &architecture, (&file, &code.text), &[])
        };
        let images: Vec<_> = missing.par_iter().map(compile).collect();
        for (code, image) in missing.iter().zip(images) {
            let load = |image: Vec<u8>| {
                let module = Module::load(device.context(), &code.name, &image);
                module.and_then(|module| module.function(&code.name)).map_err(|error| error.to_string())
            };
            let function = image.and_then(load);
            if let Err(error) = &function {
                tracing::warn!("{}: kernels of csrc compute this instead, more slowly: {error}", code.name);
            }
            self.keep(code, function.ok());
        }
        if !missing.is_empty() {
            let seconds = started.elapsed().as_secs_f64();
            tracing::info!(
                "{} generated kernels compiled or read, and loaded in {seconds:.1} s",
                missing.len()
            );
        }
    }
}
