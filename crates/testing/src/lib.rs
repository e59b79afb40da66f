//! Tests that need a GPU. Where there is none they are reported as ignored, and the reason is said once; `GRADEWISE_REQUIRE_GPU=1` makes
//! them fail instead. Arguments are those of Rust's own test programs (`--list`, `--skip`, `--exact`, `--test-threads`, filters).
//!
//! A test file that has such tests is a program of its own (`harness = false` in Cargo.toml) and ends with the list of them. What a test
//! takes says what it needs: nothing, or a device. The compiler warns of one that is not in the list.
//!
//! ```no_run
//! use gradewise_kernels::{Array, DType, Device};
//!
//! fn zeros_are_zero(device: &Device) {
//!     let zeros = Array::zeros([3], DType::F32, device).unwrap();
//!     assert_eq!(zeros.to_vec::<f32>().unwrap(), [0.0; 3]);
//! }
//!
//! fn the_cpu_is_always_there() {
//!     assert_eq!("cpu".parse(), Ok(Device::Cpu));
//! }
//!
//! gradewise_testing::main!(zeros_are_zero, the_cpu_is_always_there);
//! ```
//!
//! [`sizes`] checks the tables of layers that crates have.

pub mod sizes;

use gradewise_kernels::{CudaDevice, Device, Error};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{env, panic, process::ExitCode, sync::LazyLock, thread};

/// The folder of the crate whose tests run: that which the runner of the tests says, for they may have been built elsewhere, or that of the
/// build.
#[macro_export]
macro_rules! manifest_dir {
    () => {
        ::std::path::PathBuf::from(
            ::std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()),
        )
    };
}

/// The variable that makes a missing GPU a failure, if it is 1.
pub const REQUIRE: &str = "GRADEWISE_REQUIRE_GPU";

/// The first GPU, or why there is none. Looked for once.
pub fn found() -> &'static Result<CudaDevice, Error> {
    static FOUND: LazyLock<Result<CudaDevice, Error>> = LazyLock::new(|| CudaDevice::new(0));
    &FOUND
}

/// The first GPU, if there is one: for tests that run on every device there is.
///
/// # Panics
/// If there is none although `GRADEWISE_REQUIRE_GPU=1` says that there is.
pub fn gpu() -> Option<Device> {
    match found() {
        Ok(device) => Some(Device::Cuda(device.clone())),
        Err(error) if is_required() => panic!("{REQUIRE}=1, but: {error}"),
        Err(_) => None,
    }
}

fn is_required() -> bool {
    env::var_os(REQUIRE).is_some_and(|value| value == "1")
}

/// Marks a test that needs no device.
#[derive(Debug)]
pub struct Anywhere;

/// Marks a test that needs a GPU, and takes it as such.
#[derive(Debug)]
pub struct OnGpu;

/// Marks a test that needs a GPU, and takes it as a device.
#[derive(Debug)]
pub struct OnDevice;

/// What the GPU tests of a file need of the GPU that is found; the reason if it is another.
pub type Usable = fn(&CudaDevice) -> Result<(), String>;

/// A function that is a test; `Needs` follows from what it takes.
pub trait Case<Needs> {
    /// The test under a name.
    fn trial(self, name: &str, usable: Usable) -> Trial;
}

impl<F: FnOnce() + Send + 'static> Case<Anywhere> for F {
    fn trial(self, name: &str, _: Usable) -> Trial {
        Trial::test(name, named(name, self))
    }
}

impl<F: FnOnce(&CudaDevice) + Send + 'static> Case<OnGpu> for F {
    fn trial(self, name: &str, usable: Usable) -> Trial {
        let ignored = match found() {
            Ok(device) => usable(device).is_err(),
            Err(_) => !is_required(),
        };
        let test = move || match found() {
            Ok(device) => self(device),
            Err(error) => panic!("no GPU: {error}"),
        };
        Trial::test(name, named(name, test)).with_ignored_flag(ignored)
    }
}

impl<F: FnOnce(&Device) + Send + 'static> Case<OnDevice> for F {
    fn trial(self, name: &str, usable: Usable) -> Trial {
        let test = move |cuda: &CudaDevice| self(&Device::Cuda(cuda.clone()));
        Case::<OnGpu>::trial(test, name, usable)
    }
}

/// Runs `test` in a thread that has the test's name, as the threads of Rust's own test programs have: debug mode tells launches apart by it.
fn named(
    name: &str,
    test: impl FnOnce() + Send + 'static,
) -> impl FnOnce() -> Result<(), Failed> + Send + 'static {
    let name = name.to_owned();
    move || match thread::Builder::new().name(name).spawn(test).map(thread::JoinHandle::join) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => panic::resume_unwind(panic),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Runs the tests as the arguments of the program say.
#[must_use]
pub fn run(tests: Vec<Trial>, usable: Usable) -> ExitCode {
    let arguments = Arguments::from_args();
    let reason = match found() {
        Ok(device) => usable(device).err(),
        Err(error) => (!is_required()).then(|| error.to_string()),
    };
    if let Some(reason) = reason.filter(|_| !arguments.list) {
        eprintln!("tests that need a GPU are ignored: {reason}");
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// The `main` of a test program with these tests; with `if NEED;` before them, those that need a GPU run where the function [`NEED`](Usable)
/// finds nothing wrong with it.
#[macro_export]
macro_rules! main {
    (if $usable:expr; $($test:ident),* $(,)?) => {
        fn main() -> std::process::ExitCode {
            let usable: $crate::Usable = $usable;
            $crate::run(vec![$($crate::Case::trial($test, stringify!($test), usable)),*], usable)
        }
    };
    ($($test:ident),* $(,)?) => {
        $crate::main!(if |_| Ok(()); $($test),*);
    };
}
