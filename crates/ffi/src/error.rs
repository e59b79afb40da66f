//! Errors of the driver and of loading it.

use crate::sys::CUresult;

/// The result of a fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the driver and of the CUDA libraries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library could not be opened under any of its names.
    #[error("{library} was not found; tried {}; {hint}", tried.join("; "))]
    Library {
        /// The library.
        library: &'static str,
        /// Each path tried, with the loader's answer.
        tried: Vec<String>,
        /// What to do.
        hint: &'static str,
    },
    /// The library lacks a function.
    #[error("{library} ({provider}) has no function `{symbol}`; {hint}")]
    Symbol {
        /// The library.
        library: &'static str,
        /// Where its functions come from.
        provider: String,
        /// The function.
        symbol: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The driver serves only a CUDA version older than [`Driver::OLDEST`](crate::Driver::OLDEST).
    #[error(
        "the NVIDIA driver ({provider}) serves CUDA {}.{}, at least {}.{} is needed; update the NVIDIA driver",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// Where the driver's functions come from.
        provider: String,
        /// The newest CUDA version it serves: major, minor.
        found: (u32, u32),
        /// The oldest that is accepted.
        needed: (u32, u32),
    },
    /// A call of the driver failed.
    #[error("{call}: {name} ({}): {text}", code.0)]
    Call {
        /// The function called.
        call: &'static str,
        /// What it returned.
        code: CUresult,
        /// The driver's name of the code.
        name: String,
        /// The driver's description of the code, with its log where there is one.
        text: String,
    },
    /// A call of another library (NVRTC, NVML, cuBLASLt, NCCL) failed.
    #[error("{library}: {call}: {text} ({code})")]
    Status {
        /// The library.
        library: &'static str,
        /// The function called.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// The library's description of the code.
        text: String,
    },
    /// A library older than what this crate works with.
    #[error("{library} ({provider}) is of version {found}, at least {}.{} is needed; update it", needed.0, needed.1)]
    LibraryTooOld {
        /// The library.
        library: &'static str,
        /// Where it is.
        provider: String,
        /// Its version.
        found: String,
        /// The oldest that is accepted: major, minor.
        needed: (u32, u32),
    },
    /// A collective call did not complete in time.
    #[error("{library}: {call} was not done within {seconds} s; another process may be gone")]
    Timeout {
        /// The library.
        library: &'static str,
        /// The function called.
        call: &'static str,
        /// The timeout in seconds.
        seconds: String,
    },
    /// Source that does not compile.
    #[error("`{name}` does not compile:\n{log}")]
    Compile {
        /// The source's name.
        name: String,
        /// The compiler's log.
        log: String,
    },
    /// An image that the driver cannot load.
    #[error("module `{module}`: {problem}; {hint}")]
    Image {
        /// The module.
        module: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// A range that ends past its block of memory.
    #[error("{operation} ends at byte {end} of a block of {bytes} bytes")]
    Range {
        /// What was asked for.
        operation: &'static str,
        /// The end of the range in bytes, from the start of the block.
        end: u64,
        /// The size of the block in bytes.
        bytes: u64,
    },
    /// An argument that this crate rejects before it calls the library.
    #[error("{call}: {problem}")]
    Argument {
        /// The function of this crate.
        call: &'static str,
        /// What is wrong with which argument.
        problem: String,
    },
    /// A launch that the device cannot run.
    #[error("launch of `{kernel}`: {what} is {actual}, the device allows {limit}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// The size at fault.
        what: &'static str,
        /// The size asked for.
        actual: u64,
        /// The device's limit.
        limit: u64,
    },
    /// A module lacks a kernel.
    #[error("module `{module}` has no kernel `{kernel}`{}", names(known))]
    Kernel {
        /// The module.
        module: String,
        /// The kernel asked for.
        kernel: String,
        /// The kernels it has, where the driver can tell.
        known: Vec<String>,
    },
}

fn names(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) }
}

impl Error {
    /// The driver's code, if a call failed.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }
}
