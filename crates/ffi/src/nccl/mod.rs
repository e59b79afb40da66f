//! NCCL: sums and copies of arrays between GPUs, where it is installed.
//!
//! The library is found under its own name by the loader, in `CUDA_HOME` or `CUDA_PATH`, in the Python environment in use (the
//! wheels `nvidia-nccl-cu13`), and in the folders that `scripts/get-nvcc` fills; the variable `GRADEWISE_NCCL` names a file
//! or a folder and ends the search.

mod calls;
mod communicator;

pub use calls::{Calls, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
pub use communicator::{Communicator, Options};

use crate::{Dynamic, Error, Provider, Result, search::Search};
use std::{fmt, sync::Arc};

/// The library. Cheap to clone.
#[derive(Clone)]
pub struct Nccl(Arc<Calls>);

impl std::ops::Deref for Nccl {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

impl Nccl {
    /// The oldest version with non-blocking communicators.
    pub const OLDEST: (u32, u32) = (2, 14);

    const SEARCH: Search =
        Search { variable: "GRADEWISE_NCCL", names: &["libnccl.so.2", "libnccl.so"], wheel: "nccl" };

    /// Opens the library.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried; [`Error::LibraryTooOld`].
    pub fn load() -> Result<Self> {
        const HINT: &str = "install it with `pip install nvidia-nccl-cu13`, and set GRADEWISE_NCCL to the library or its folder";
        let candidates = Self::SEARCH.candidates();
        let paths: Vec<&str> = candidates.iter().map(String::as_str).collect();
        Self::new(Dynamic::open(Calls::LIBRARY, &paths, HINT)?)
    }

    /// A library whose functions come from `provider`.
    ///
    /// # Errors
    /// [`Error::LibraryTooOld`]; [`Error::Symbol`] if it is no NCCL.
    pub fn new(provider: impl Provider + 'static) -> Result<Self> {
        let library = Self(Arc::new(Calls::new(Box::new(provider))));
        let (major, minor, patch) = library.version()?;
        if (major, minor) < Self::OLDEST {
            let (provider, oldest) = (library.provider(), Self::OLDEST);
            return Err(Error::LibraryTooOld {
                library: "NCCL",
                provider,
                found: format!("{major}.{minor}.{patch}"),
                needed: oldest,
            });
        }
        Ok(library)
    }

    /// The library's version: major, minor, patch.
    ///
    /// # Errors
    /// From the library.
    pub fn version(&self) -> Result<(u32, u32, u32)> {
        let mut code = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.ncclGetVersion(&mut code)? };
        let code = code.max(0) as u32;
        // Up to 2.8 the minor version had one digit.
        Ok(match code {
            0..10_000 => (code / 1000, code / 100 % 10, code % 100),
            _ => (code / 10_000, code / 100 % 100, code % 100),
        })
    }

    /// A new identifier for a group of communicators. One process creates it and sends it to the others.
    ///
    /// # Errors
    /// From the library, mostly because there is no network interface.
    pub fn unique_id(&self) -> Result<ncclUniqueId> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the pointer is valid for the write.
        unsafe { self.ncclGetUniqueId(&mut id)? };
        Ok(id)
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nccl({})", self.provider())
    }
}
