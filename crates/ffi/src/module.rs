//! Modules: compiled kernels.

use crate::{Context, Error, Image, Result, sys::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    sync::Arc,
};

/// Compiled kernels in a context. Cheap to clone; unloaded when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Module(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    raw: CUmodule,
    name: String,
}

impl Module {
    /// Loads a fat binary, machine code, or PTX. `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Image`] if the bytes are none of these, or truncated. `ERROR_INVALID_IMAGE` or `ERROR_NO_BINARY_FOR_GPU`, with the log of
    /// the just-in-time compiler, if the image has no code for this device.
    pub fn load(context: &Context, name: &str, image: &[u8]) -> Result<Self> {
        let image = Image::recognise(name, image)?;
        context.bind()?;
        let mut log = vec![0u8; 8 << 10];
        let mut names = [jit_option::ERROR_LOG_BUFFER, jit_option::ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
        let mut raw = CUmodule::NULL;
        // SAFETY: all pointers are valid; the log's size is what is stated; the context is bound. The driver reads up to the
        // size that the image's header states, which was compared with the real one, or up to the zero byte of a text.
        let result = unsafe {
            context.driver().cuModuleLoadDataEx(
                &mut raw,
                image.bytes().as_ptr().cast::<c_void>(),
                names.len() as c_uint,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        result.map_err(|error| match error {
            Error::Call { call, code, name: code_name, text } => {
                let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let said = if said.trim().is_empty() { String::new() } else { format!("; {}", said.trim()) };
                Error::Call { call, code, name: code_name, text: format!("{text} (module `{name}`){said}") }
            }
            other => other,
        })?;
        Ok(Self(Arc::new(Inner { context: context.clone(), raw, name: name.to_owned() })))
    }

    /// The module's context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The name given at loading.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn raw(&self) -> CUmodule {
        self.0.raw
    }

    /// The names of the kernels (drivers from 12.4 on).
    ///
    /// # Errors
    /// From the driver.
    pub fn function_names(&self) -> Result<Vec<String>> {
        let driver = self.0.context.driver();
        self.0.context.bind()?;
        let mut count = 0;
        // SAFETY: the pointer is valid for the write; the module is loaded.
        unsafe { driver.cuModuleGetFunctionCount(&mut count, self.0.raw)? };
        let mut functions = vec![CUfunction::NULL; count as usize];
        // SAFETY: the array has room for `count` handles.
        unsafe { driver.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, self.0.raw)? };
        functions
            .into_iter()
            .map(|function| {
                let mut name = std::ptr::null();
                // SAFETY: the pointer is valid for the write; the handle is the driver's own.
                unsafe { driver.cuFuncGetName(&mut name, function)? };
                // SAFETY: the driver gave the address of a string that lives as long as the module.
                Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
            })
            .collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: loaded in `load`, unloaded once; no `Function` is left, for each holds the module.
        self.context.release(|driver| unsafe { driver.cuModuleUnload(self.raw) });
    }
}
