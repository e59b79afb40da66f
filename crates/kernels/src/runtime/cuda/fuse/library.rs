//! Generated kernels, compiled by NVRTC, kept on disk, and ready to launch.

use super::source::Source;
use crate::{
    Result,
    runtime::cuda::{CudaDevice, constants::Key, rtc},
};
use gradewise_ffi::{Function, Module};
use rayon::prelude::*;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The generated kernels of a device, by their text. `None` for one that cannot be had.
#[derive(Default)]
pub(super) struct Library(Mutex<HashMap<String, Option<Function>>>);

/// Whether there is a compiler for kernels.
pub(super) fn has_compiler() -> bool {
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
    pub fn find(&self, source: &Source) -> Option<Option<Function>> {
        self.kernels().get(&source.text).cloned()
    }

    /// A kernel that was compiled elsewhere.
    #[cfg(test)]
    pub fn adopt(&self, source: &Source, function: Function) {
        self.kernels().insert(source.text.clone(), Some(function));
    }

    /// Compiles what is missing, several at a time, and loads it.
    pub fn compile(&self, device: &CudaDevice, sources: &[Source]) {
        let started = std::time::Instant::now();
        let mut seen = HashSet::new();
        let missing: Vec<&Source> = sources
            .iter()
            .filter(|source| self.find(source).is_none() && seen.insert(source.text.as_str()))
            .collect();
        let architecture = rtc::architecture(device.context());
        let compile = |source: &&Source| -> std::result::Result<Vec<u8>, String> {
            let compiler = rtc::compiler().map_err(|error| error.to_string())?;
            let file = format!("{}.cu", source.name);
            rtc::compile_source(compiler, &architecture, (&file, &source.text), &[])
        };
        let images: Vec<_> = missing.par_iter().map(compile).collect();
        for (source, image) in missing.iter().zip(images) {
            let load = |image: Vec<u8>| {
                let module = Module::load(device.context(), &source.name, &image);
                module.and_then(|module| module.function(&source.name)).map_err(|error| error.to_string())
            };
            let function = image.and_then(load);
            if let Err(error) = &function {
                tracing::warn!("{}: its operators are launched one by one: {error}", source.name);
            }
            self.kernels().insert(source.text.clone(), function.ok());
        }
        if !missing.is_empty() {
            let seconds = started.elapsed().as_secs_f64();
            tracing::info!("{} fused kernels compiled or read, and loaded in {seconds:.1} s", missing.len());
        }
    }
}
