//! NVTX: named ranges of a program, as profilers show them.
//!
//! A profiler that records ranges (`nsys profile --trace nvtx`, `ncu --nvtx`) names its injection library in the variable
//! `NVTX_INJECTION64_PATH`. That library installs its functions here. Without one, a range costs a load and a branch.
//!
//! ```
//! let _step = gradewise_ffi::nvtx::range("step");
//! {
//!     let _forward = gradewise_ffi::nvtx::range("forward");
//!     // …
//! }
//! ```

use crate::{Dynamic, Error, Provider, Result};
use std::{
    ffi::{CString, c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    ptr::null_mut,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// A range on this thread, which ends when this value is dropped. Ranges nest.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    open: bool,
    /// Makes the type `!Send`: the stack of ranges is per thread.
    thread: PhantomData<*const ()>,
}

/// Begins a range.
pub fn range(name: &str) -> Range {
    let push = function(RANGE_PUSH);
    if let Some(push) = push {
        let name = text(name);
        // SAFETY: a tool's function under this number has this type; the string ends with a zero byte.
        unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "system" fn(*const c_char) -> c_int>(push)(
                name.as_ptr(),
            )
        };
    }
    Range { open: push.is_some(), thread: PhantomData }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(pop) = function(RANGE_POP).filter(|_| self.open) {
            // SAFETY: a tool's function under this number has this type.
            unsafe { std::mem::transmute::<*const c_void, unsafe extern "system" fn() -> c_int>(pop)() };
        }
    }
}

/// Records an instantaneous event.
pub fn mark(name: &str) {
    if let Some(mark) = function(MARK) {
        let name = text(name);
        // SAFETY: a tool's function under this number has this type; the string ends with a zero byte.
        unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "system" fn(*const c_char)>(mark)(
                name.as_ptr(),
            )
        };
    }
}

/// Whether a profiler is attached. The first call of any function of this module looks for one.
///
/// # Errors
/// [`Error::Library`] if `NVTX_INJECTION64_PATH` names a library that does not open, [`Error::Symbol`] if that library is not a profiler's,
/// [`Error::Status`] if it refuses. Ranges then have no effect.
pub fn attach() -> Result<bool> {
    static ATTACHED: OnceLock<Result<bool>> = OnceLock::new();
    ATTACHED.get_or_init(inject).clone()
}

/// The name as a C string, up to its first zero byte.
fn text(name: &str) -> CString {
    CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

// Numbers of functions of the module `CORE`, as tools and programs agree on them (`nvtxTypes.h`).
const MARK: usize = 2;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

const CORE: usize = 1;
/// Size of each module's function table, including the invalid index 0; there is no module 0.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;

/// The functions that a tool installed; null if none is.
static FUNCTIONS: [[AtomicPtr<c_void>; MOST]; SIZES.len()] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST] }; SIZES.len()];

/// The addresses of the entries of `FUNCTIONS`, as tools get them; each module's list ends with null.
static PLACES: LazyLock<[[AtomicPtr<AtomicPtr<c_void>>; MOST + 1]; SIZES.len()]> = LazyLock::new(|| {
    std::array::from_fn(|module| {
        std::array::from_fn(|number| {
            let exists = number > 0 && number < SIZES[module];
            let place = exists.then(|| (&raw const FUNCTIONS[module][number]).cast_mut());
            AtomicPtr::new(place.unwrap_or(null_mut()))
        })
    })
});

fn function(number: usize) -> Option<*const c_void> {
    if !matches!(attach(), Ok(true)) {
        return None;
    }
    let function = FUNCTIONS[CORE][number].load(Ordering::Acquire);
    (!function.is_null()).then_some(function.cast_const())
}

#[repr(C)]
struct Callbacks {
    size: usize,
    functions: unsafe extern "system" fn(c_int, *mut *const c_void, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "system" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), functions };
static VERSION: Version = Version { size: size_of::<Version>(), version: 3, reserved: 0, set: ignore };

extern "system" fn ignore(_version: u32) {}

/// Gives a tool the addresses of the entries of a module; returns 0 if there is no such module.
///
/// # Safety
/// The pointers must be null or valid for the write.
unsafe extern "system" fn functions(module: c_int, places: *mut *const c_void, size: *mut c_uint) -> c_int {
    let Some(module) = usize::try_from(module).ok().filter(|module| (1..SIZES.len()).contains(module)) else {
        return 0;
    };
    if !places.is_null() {
        // SAFETY: valid for the write, says the caller.
        unsafe { *places = PLACES[module].as_ptr().cast::<c_void>() };
    }
    if !size.is_null() {
        // SAFETY: valid for the write, says the caller.
        unsafe { *size = SIZES[module] as c_uint };
    }
    1
}

/// The entry point that a tool gets: returns an export table by its number.
extern "system" fn export(table: u32) -> *const c_void {
    match table {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => std::ptr::null(),
    }
}

/// Loads the injection library that the variable names, which installs its functions.
fn inject() -> Result<bool> {
    const VARIABLE: &str =
        if cfg!(target_pointer_width = "64") { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };
    const LIBRARY: &str = "the profiler's library named by NVTX_INJECTION64_PATH";
    let Some(path) = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty()) else { return Ok(false) };
    let library = Dynamic::open(LIBRARY, &[&path], "unset the variable, or correct it")?;
    let Some(entry) = library.symbol(c"InitializeInjectionNvtx2") else {
        return Err(Error::Symbol {
            library: LIBRARY,
            provider: library.describe(),
            symbol: "InitializeInjectionNvtx2",
            hint: "it is not a profiler's; unset the variable, or correct it",
        });
    };
    // The tool's functions may be called until the program ends.
    std::mem::forget(library);
    type Entry = unsafe extern "system" fn(extern "system" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the function of this name has this type in every tool. It writes only to the places that it gets.
    let accepted = unsafe { std::mem::transmute::<*const c_void, Entry>(entry)(export) };
    if accepted == 1 {
        return Ok(true);
    }
    let text = "the profiler refuses to listen".to_owned();
    Err(Error::Status { library: LIBRARY, call: "InitializeInjectionNvtx2", code: accepted, text })
}
