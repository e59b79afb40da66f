//! Loading the driver.

use crate::{
    Calls, Error, Result,
    provider::{Dynamic, Provider},
};
use std::{fmt, sync::Arc};

/// The CUDA driver. Cheap to clone.
#[derive(Clone)]
pub struct Driver(Arc<Calls>);

impl std::ops::Deref for Driver {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0
    }
}

impl Driver {
    /// The oldest driver that is accepted, as [`version`](Self::version) counts: stream-ordered memory and graphs that
    /// allocate need CUDA 11.4; the kernels are compiled by a toolkit of major version 12 or later.
    pub const OLDEST: (u32, u32) = (12, 0);

    /// Names under which the driver's library is looked for.
    pub const PATHS: &[&str] = if cfg!(windows) {
        &["nvcuda.dll"]
    } else {
        &[
            "libcuda.so.1",
            "libcuda.so",
            "/usr/lib/wsl/lib/libcuda.so.1",
            "/usr/local/nvidia/lib64/libcuda.so.1",
        ]
    };

    /// Opens the driver's library and initialises it.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried; otherwise as [`new`](Self::new).
    pub fn load() -> Result<Self> {
        const HINT: &str =
            "install the NVIDIA driver, or set LD_LIBRARY_PATH to the folder that has its library";
        Self::new(Dynamic::open(Calls::LIBRARY, Self::PATHS, HINT)?)
    }

    /// Opens this library instead, such as a stand-in for tests.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn open(path: &str) -> Result<Self> {
        Self::new(Dynamic::open(Calls::LIBRARY, &[path], "check the path")?)
    }

    /// A driver whose functions come from `provider`, initialised.
    ///
    /// # Errors
    /// [`Error::Call`] if there is no device, or the driver does not start; [`Error::DriverTooOld`] if it is older than
    /// [`OLDEST`](Self::OLDEST).
    pub fn new(provider: impl Provider + 'static) -> Result<Self> {
        let driver = Self(Arc::new(Calls::new(Box::new(provider))));
        // The version query needs no initialisation, and its answer is clearer than the error of `cuInit` from an old driver.
        let (found, needed) = (driver.version()?, Self::OLDEST);
        if found < needed {
            return Err(Error::DriverTooOld { provider: driver.provider(), found, needed });
        }
        // SAFETY: no preconditions.
        unsafe { driver.cuInit(0)? };
        Ok(driver)
    }

    /// Whether both are handles of the same loaded driver, so that their contexts and memory can be used in one call.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The newest CUDA version that the driver serves: major, minor.
    ///
    /// # Errors
    /// From the driver.
    pub fn version(&self) -> Result<(u32, u32)> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.cuDriverGetVersion(&mut version)? };
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// Number of devices.
    ///
    /// # Errors
    /// From the driver.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.cuDeviceGetCount(&mut count)? };
        Ok(count.max(0) as usize)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({})", self.provider())
    }
}
