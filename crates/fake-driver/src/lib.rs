//! A stand-in for the CUDA driver in host memory: a shared library in C, opened by the code that opens the real one.
//!
//! It checks what a device would not tell: memory used after it was freed, handles used after they were released, what is
//! left when a context ends. Work is queued and done when somebody waits for it, so that order matters. Any call can be
//! told to fail. Kernels are functions of the host, registered under the names that PTX text declares; `scale_f32`,
//! `trap` (an illegal address), and those of the drills of `gradewise debug` are always there.
//!
//! Without [`Fake`], in a program of its own, it is controlled by the variable
//! `FAKE_CUDA=version=11040;memory=1048576;fail=cuMemAlloc_v2:3:2` (the third such call answers 2).

use libloading::Library;
use std::{
    env,
    ffi::{CString, c_char, c_longlong, c_void},
    io::ErrorKind,
    path::PathBuf,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The shared library, whose state all who open it by this path in a process share.
pub fn path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| file("libcuda.so.1"));
    &PATH
}

/// A stand-in for NVML, with two devices whose numbers never change.
pub fn nvml() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| file("libnvidia-ml.so.1"));
    &PATH
}

/// A stand-in for cuBLASLt, whose products are computed on the host when they are queued.
pub fn cublaslt() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| file("libcublasLt.so.13"));
    &PATH
}

/// A stand-in for NCCL among the threads of a program. Its version is 2.28.3, or what the variable `FAKE_NCCL_VERSION` says (as in
/// 21000).
pub fn nccl() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| file("libnccl.so.2"));
    &PATH
}

/// A stand-in for a profiler's NVTX library; what it hears goes to the file that the variable `FAKE_NVTX_LOG` names.
pub fn nvtx() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| file("libfake-nvtx.so"));
    &PATH
}

/// The folder that has it, and the other stand-ins, under the names of the real libraries, for `LD_LIBRARY_PATH`: where
/// they were built, or what the variable `GRADEWISE_FAKE_DRIVER` names, for tests that run on another machine.
pub fn folder() -> &'static str {
    static FOLDER: LazyLock<String> = LazyLock::new(|| {
        env::var("GRADEWISE_FAKE_DRIVER").unwrap_or_else(|_| env!("FAKE_DRIVER_FOLDER").to_owned())
    });
    &FOLDER
}

fn file(name: &str) -> String {
    format!("{}/{name}", folder())
}

/// A stand-in of one's own: a copy of the library, with state that nobody shares. Tests with one each run in parallel.
pub struct Fake {
    library: Library,
    path: PathBuf,
    // After the library, which is closed before its file goes.
    _folder: Folder,
}

/// A folder of its own among the temporary ones, which goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name =
                format!("fake-driver-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let folder = env::temp_dir().join(name);
            match std::fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                // Left by a process that had the same number and was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a temporary folder, {}: {error}", folder.display()),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // One that stays is no failure of a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a registered kernel gets: the addresses of its arguments, the grid's and the block's size, shared memory. It
/// returns a code of the driver, 0 for success; any other is an error that stays.
pub type Kernel = unsafe extern "C" fn(
    arguments: *const *const c_void,
    grid: *const [u32; 3],
    block: *const [u32; 3],
    shared: u32,
) -> u32;

impl Fake {
    /// A fresh one: two devices of compute capability 9.0 with 1 GiB each, and a driver that serves CUDA 13.0.
    ///
    /// # Panics
    /// If the library cannot be copied or opened.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let folder = Folder::new();
        let file = folder.0.join("libcuda.so.1");
        std::fs::copy(path(), &file).expect("a copy of the library");
        // SAFETY: the library's initialiser has no preconditions.
        let library = unsafe { Library::new(&file) }.expect("the library opens");
        Self { library, path: file, _folder: folder }
    }

    /// The copy's path.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("temporary folders have names in UTF-8")
    }

    /// Forgets everything: objects, failures, counts, settings.
    pub fn reset(&self) {
        // SAFETY: the library's function of this name has this type.
        unsafe { self.function::<unsafe extern "C" fn()>("fake_reset")() }
    }

    /// Lets the `nth` call of `function` from now on (1 is the next) answer `code` and do nothing; any function if `*`.
    pub fn fail(&self, function: &str, nth: u64, code: u32) {
        let name = text(function);
        type Fail = unsafe extern "C" fn(*const c_char, c_longlong, u32);
        // SAFETY: the library's function of this name has this type; the string ends with a zero byte.
        unsafe { self.function::<Fail>("fake_fail")(name.as_ptr(), nth as c_longlong, code) }
    }

    /// Sets `version` (as in 12040), `devices` (at most 4), `major` and `minor` (compute capability), `memory` (bytes), or
    /// `records_pageable` (1: captures take copies from and to pageable host memory, 0: they refuse them).
    ///
    /// # Panics
    /// If there is no such setting.
    pub fn set(&self, setting: &str, value: u64) {
        let name = text(setting);
        type Set = unsafe extern "C" fn(*const c_char, c_longlong) -> bool;
        // SAFETY: as above.
        let known = unsafe { self.function::<Set>("fake_set")(name.as_ptr(), value as c_longlong) };
        assert!(known, "no setting `{setting}`");
    }

    /// A number: live `streams`, `events`, `modules`, `graphs`, `execs`, `blocks` (of device memory), `host_blocks`,
    /// `bytes`, `contexts`; what went wrong, `double_frees`, `uses_after_free`, `bad_handles`, `leaks`; `launches` that
    /// ran; `failed_releases`, which were told to fail; `calls`; or the calls of one function by its name.
    pub fn stat(&self, name: &str) -> u64 {
        let name = text(name);
        type Stat = unsafe extern "C" fn(*const c_char) -> c_longlong;
        // SAFETY: as above.
        unsafe { self.function::<Stat>("fake_stat")(name.as_ptr()) as u64 }
    }

    /// Runs `kernel` for launches of this name.
    pub fn register(&self, name: &str, kernel: Kernel) {
        let name = text(name);
        // SAFETY: as above.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, Kernel)>("fake_kernel")(name.as_ptr(), kernel)
        }
    }

    /// Whether the library has a function.
    pub fn has(&self, function: &str) -> bool {
        // SAFETY: the address is not used.
        unsafe { self.library.get::<*const c_void>(text(function).as_bytes_with_nul()) }.is_ok()
    }

    /// What is alive or went wrong, by name; empty if everything was released, once, and nothing was used after that.
    pub fn remains(&self) -> Vec<(&'static str, u64)> {
        const ALL: [&str; 12] = [
            "streams",
            "events",
            "modules",
            "graphs",
            "execs",
            "blocks",
            "host_blocks",
            "contexts",
            "double_frees",
            "uses_after_free",
            "bad_handles",
            "leaks",
        ];
        ALL.iter().map(|&name| (name, self.stat(name))).filter(|(_, count)| *count > 0).collect()
    }

    /// # Safety
    /// `T` must be the type of the function of this name.
    unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller says that the function has this type.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn text(text: &str) -> CString {
    CString::new(text).expect("names have no zero byte")
}

/// A thread, for another one that goes on only once this one waits for something.
#[derive(Clone, Debug)]
pub struct Thread(PathBuf);

impl Thread {
    /// The calling thread.
    ///
    /// # Panics
    /// If the system does not show its threads as files of `/proc`.
    pub fn current() -> Self {
        let link = std::fs::read_link("/proc/thread-self").expect("Linux shows threads in /proc");
        Self(PathBuf::from("/proc").join(link).join("stat"))
    }

    /// Returns once the thread is blocked (a lock, a channel, a pause between looks at something), or has ended.
    pub fn wait_until_blocked(&self) {
        // The state is the word behind the name, which is in parentheses: S for one that sleeps.
        let runs = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('S'));
        while std::fs::read_to_string(&self.0).is_ok_and(runs) {
            std::thread::yield_now();
        }
    }
}
