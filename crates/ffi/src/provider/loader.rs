//! The system's loader of shared libraries. Targets without one, such as WebAssembly, refuse every library.

#[cfg(not(any(unix, windows)))]
pub(super) use absent::Library;
#[cfg(any(unix, windows))]
pub(super) use libloading::Library;

#[cfg(not(any(unix, windows)))]
mod absent {
    use std::{ffi::c_void, fmt, path::Path};

    /// A library that was opened: there is none.
    pub enum Library {}

    #[derive(Debug)]
    pub struct NoLoader;

    impl Library {
        /// # Safety
        /// None is needed; the signature is that of `libloading`.
        pub unsafe fn new(_: impl AsRef<Path>) -> Result<Self, NoLoader> {
            Err(NoLoader)
        }

        /// # Safety
        /// None is needed; the signature is that of `libloading`.
        pub unsafe fn get<T>(&self, _: &[u8]) -> Result<&*const c_void, NoLoader> {
            match *self {}
        }
    }

    impl fmt::Display for NoLoader {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("this target has no loader of shared libraries")
        }
    }

    impl std::error::Error for NoLoader {}
}
