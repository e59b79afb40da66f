//! Where the driver's functions come from.

#[cfg(feature = "cuda-sys")]
mod cuda_sys;
#[cfg(feature = "linked")]
mod linked;
mod loader;
#[cfg(any(feature = "linked", feature = "cuda-sys", feature = "cust"))]
pub(crate) mod process;

#[cfg(feature = "cuda-sys")]
pub use cuda_sys::CudaSys;
#[cfg(feature = "linked")]
pub use linked::Linked;

use crate::{Error, Result};
use loader::Library;
use std::{
    ffi::{CStr, c_void},
    path::Path,
};

/// A source of function addresses: an opened library, or functions linked into the program.
pub trait Provider: Send + Sync {
    /// The address of a function of the library, if it has it.
    ///
    /// # Safety of implementations
    /// A non-null address must be that of the function of this name, as declared by the library's vendor, and stay valid
    /// while the provider lives.
    fn symbol(&self, name: &CStr) -> Option<*const c_void>;

    /// Where the functions come from, for messages.
    fn describe(&self) -> String;
}

/// A shared library opened at run time.
pub struct Dynamic {
    library: Library,
    /// Libraries that this library opens by name on demand. They are opened by path beforehand, so that the loader finds them.
    companions: Vec<Library>,
    path: String,
}

impl Dynamic {
    /// Opens the first of `paths` that the loader finds.
    ///
    /// # Errors
    /// [`Error::Library`] with the loader's answer for each path; on targets without a loader (WebAssembly), always.
    pub fn open(library: &'static str, paths: &[&str], hint: &'static str) -> Result<Self> {
        let mut tried = Vec::new();
        for path in paths {
            // SAFETY: the libraries opened here are NVIDIA's (or a caller's own stand-in), whose initialisers have no
            // preconditions.
            match unsafe { Library::new(*path) } {
                Ok(library) => return Ok(Self { library, companions: Vec::new(), path: (*path).to_owned() }),
                Err(error) => tried.push(format!("{path} ({})", reason(&error))),
            }
        }
        Err(Error::Library { library, tried, hint })
    }

    /// Opens the files in the library's own folder whose names begin with `prefix`. The library later requests them by name. The loader
    /// does not search that folder, but it finds libraries that are already open.
    pub(crate) fn with_companions(mut self, prefix: &str) -> Self {
        let folder = Path::new(&self.path).parent().filter(|folder| !folder.as_os_str().is_empty());
        let files = folder.and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix)) {
            // SAFETY: as in `open`. If a companion does not open, the call that needs it fails with an error that says so.
            self.companions.extend(unsafe { Library::new(file.path()) });
        }
        self
    }
}

/// The loader's message without the path that it mostly begins with.
fn reason(error: &impl std::error::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    text.rsplit_once(": ").map_or(text.clone(), |(_, reason)| reason.to_owned())
}

impl Provider for Dynamic {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the address is only copied out; `table!` gives it the type that the vendor declares.
        let symbol = unsafe { self.library.get::<*const c_void>(name.to_bytes_with_nul()) }.ok()?;
        Some(*symbol).filter(|address| !address.is_null())
    }

    fn describe(&self) -> String {
        self.path.clone()
    }
}
