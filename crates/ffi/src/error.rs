//! Errors of the driver and of loading it.

use crate::sys::CUresult;
use std::fmt;

/// The result of a fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the driver and of the CUDA libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A library could not be opened under any of its names.
    Library {
        /// The library.
        library: &'static str,
        /// Each path tried, with the loader's answer.
        tried: Vec<String>,
        /// What to do.
        hint: &'static str,
    },
    /// The library lacks a function.
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
    DriverTooOld {
        /// Where the driver's functions come from.
        provider: String,
        /// The newest CUDA version it serves: major, minor.
        found: (u32, u32),
        /// The oldest that is accepted.
        needed: (u32, u32),
    },
    /// A call of the driver failed.
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
    Timeout {
        /// The library.
        library: &'static str,
        /// The function called.
        call: &'static str,
        /// The timeout in seconds.
        seconds: String,
    },
    /// Source that does not compile.
    Compile {
        /// The source's name.
        name: String,
        /// The compiler's log.
        log: String,
    },
    /// An image that the driver cannot load.
    Image {
        /// The module.
        module: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// A range that ends past its block of memory.
    Range {
        /// What was asked for.
        operation: &'static str,
        /// The end of the range in bytes, from the start of the block.
        end: u64,
        /// The size of the block in bytes.
        bytes: u64,
    },
    /// An argument that this crate rejects before it calls the library.
    Argument {
        /// The function of this crate.
        call: &'static str,
        /// What is wrong with which argument.
        problem: String,
    },
    /// A [recording](crate::Stream::record) that came to nothing, or what it recorded cannot be replayed safely.
    Capture {
        /// Where in the recording, such as "in step `norm`".
        place: String,
        /// The call of this crate that the capture refused.
        call: Option<&'static str>,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// A launch that the device cannot run.
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
    Kernel {
        /// The module.
        module: String,
        /// The kernel asked for.
        kernel: String,
        /// The kernels it has, where the driver can tell.
        known: Vec<String>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { library, tried, hint } => {
                write!(f, "{library} was not found; tried {}; {hint}", tried.join("; "))
            }
            Self::Symbol { library, provider, symbol, hint } => {
                write!(f, "{library} ({provider}) has no function `{symbol}`; {hint}")
            }
            Self::DriverTooOld { provider, found, needed } => write!(
                f,
                "the NVIDIA driver ({provider}) serves CUDA {}.{}, at least {}.{} is needed; update the NVIDIA driver",
                found.0, found.1, needed.0, needed.1
            ),
            Self::Call { call, code, name, text } => write!(f, "{call}: {name} ({}): {text}", code.0),
            Self::Status { library, call, code, text } => write!(f, "{library}: {call}: {text} ({code})"),
            Self::LibraryTooOld { library, provider, found, needed: (major, minor) } => write!(
                f,
                "{library} ({provider}) is of version {found}, at least {major}.{minor} is needed; update it"
            ),
            Self::Timeout { library, call, seconds } => {
                write!(f, "{library}: {call} was not done within {seconds} s; another process may be gone")
            }
            Self::Compile { name, log } => write!(f, "`{name}` does not compile:\n{log}"),
            Self::Image { module, problem, hint } => write!(f, "module `{module}`: {problem}; {hint}"),
            Self::Range { operation, end, bytes } => {
                write!(f, "{operation} ends at byte {end} of a block of {bytes} bytes")
            }
            Self::Argument { call, problem } => write!(f, "{call}: {problem}"),
            Self::Capture { place, call, problem, hint } => {
                let call = call.map(|call| format!("{call}: ")).unwrap_or_default();
                write!(f, "recording {place}: {call}{problem}; {hint}")
            }
            Self::Launch { kernel, what, actual, limit } => {
                write!(f, "launch of `{kernel}`: {what} is {actual}, the device allows {limit}")
            }
            Self::Kernel { module, kernel, known } => {
                write!(f, "module `{module}` has no kernel `{kernel}`")?;
                if known.is_empty() { Ok(()) } else { write!(f, "; it has {}", known.join(", ")) }
            }
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The driver's code, if a call failed.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }
}
