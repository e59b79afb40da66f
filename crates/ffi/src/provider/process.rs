//! Functions of libraries that are part of the process already.

use std::ffi::{CStr, c_void};

/// The address of a function of the driver that the program was linked with.
#[cfg(any(unix, windows))]
pub(crate) fn symbol(name: &CStr) -> Option<*const c_void> {
    #[cfg(unix)]
    let library = libloading::os::unix::Library::this();
    #[cfg(windows)]
    let library = libloading::os::windows::Library::open_already_loaded("nvcuda.dll").ok()?;
    // SAFETY: the address is only copied out; `table!` gives it the type that the vendor declares. The library stays, since
    // the program is linked with it.
    let symbol = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) }.ok()?;
    Some(*symbol).filter(|address| !address.is_null())
}

/// Targets without a loader have no driver either.
#[cfg(not(any(unix, windows)))]
pub(crate) fn symbol(_: &CStr) -> Option<*const c_void> {
    None
}
