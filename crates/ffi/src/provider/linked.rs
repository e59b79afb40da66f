//! The driver that the program is linked with.

use super::process;
use crate::Provider;
use std::ffi::{CStr, c_uint, c_void};

#[link(name = "cuda")]
unsafe extern "system" {
    /// Declared so that the linker records the library as needed; all other functions are looked up in it.
    fn cuInit(flags: c_uint) -> c_uint;
}

/// The driver's library, linked with `-lcuda` and opened by the loader before the program starts. A program linked this way does not start
/// without a driver; with [`Dynamic`](crate::Dynamic) the program decides.
///
/// The library to link with is looked for at build time in the folder `CUDA_LIB_DIR`, and in the toolkits that `CUDA_HOME`
/// and `CUDA_PATH` name; without one a stand-in with the driver's name is compiled, which is enough for the linker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linked;

impl Provider for Linked {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        if name == c"cuInit" { Some(cuInit as *const c_void) } else { process::symbol(name) }
    }

    fn describe(&self) -> String {
        "linked".to_owned()
    }
}
