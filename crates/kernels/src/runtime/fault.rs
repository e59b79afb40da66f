//! What an error of the device means, and what to do about it.

use crate::runtime::debug::{Launch, Outcome};
use gradewise_ffi::{Error, sys::CUresult};
use std::fmt::{self, Write};

/// The kinds of errors of work on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A read or write outside of what was allocated.
    IllegalAddress,
    /// A word at an address that is no multiple of its size.
    MisalignedAddress,
    /// An instruction that the device does not have, or a trap.
    IllegalInstruction,
    /// An assertion in a kernel.
    Assertion,
    /// Stack, program counter or address space of a kernel are damaged.
    Corruption,
    /// An exception without a class of its own.
    LaunchFailure,
    /// More registers or shared memory than a multiprocessor has.
    OutOfResources,
    /// A kernel that ran longer than the system lets it.
    Timeout,
    /// The device's memory is damaged.
    Ecc,
    /// A library (cuBLASLt, NCCL) could not run something.
    Library,
}

impl Fault {
    /// The kind of an error of the driver or of a library; `None` for those that no work caused.
    pub fn of(source: &Error) -> Option<Self> {
        if let Error::Status { library, code, .. } = source {
            // CUBLAS_STATUS_MAPPING_ERROR, EXECUTION_FAILED, INTERNAL_ERROR; ncclUnhandledCudaError.
            let failed = match *library {
                library if library.starts_with("cuBLASLt") => matches!(code, 11 | 13 | 14),
                library if library.starts_with("NCCL") => *code == 1,
                _ => false,
            };
            return failed.then_some(Self::Library);
        }
        Some(match source.code()? {
            CUresult::ERROR_ILLEGAL_ADDRESS => Self::IllegalAddress,
            CUresult::ERROR_MISALIGNED_ADDRESS => Self::MisalignedAddress,
            CUresult::ERROR_ILLEGAL_INSTRUCTION => Self::IllegalInstruction,
            CUresult::ERROR_ASSERT => Self::Assertion,
            CUresult::ERROR_HARDWARE_STACK_ERROR
            | CUresult::ERROR_INVALID_ADDRESS_SPACE
            | CUresult::ERROR_INVALID_PC => Self::Corruption,
            CUresult::ERROR_LAUNCH_FAILED => Self::LaunchFailure,
            CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES => Self::OutOfResources,
            CUresult::ERROR_LAUNCH_TIMEOUT => Self::Timeout,
            CUresult::ERROR_ECC_UNCORRECTABLE => Self::Ecc,
            _ => return None,
        })
    }

    /// Whether the context is lost: only a new process recovers.
    pub fn is_sticky(self) -> bool {
        !matches!(self, Self::OutOfResources | Self::Library)
    }

    /// Its name in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::IllegalAddress => "illegal address",
            Self::MisalignedAddress => "misaligned address",
            Self::IllegalInstruction => "illegal instruction",
            Self::Assertion => "assertion in a kernel",
            Self::Corruption => "damaged stack or program counter",
            Self::LaunchFailure => "launch failure",
            Self::OutOfResources => "out of resources",
            Self::Timeout => "timeout",
            Self::Ecc => "uncorrectable memory error",
            Self::Library => "failure inside a library",
        }
    }

    /// What it means.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::IllegalAddress => "a kernel read or wrote memory that is not allocated",
            Self::MisalignedAddress => {
                "a kernel read or wrote a word at an address that is no multiple of its size, such as a vector of four at \
                 an odd offset"
            }
            Self::IllegalInstruction => {
                "the device met an instruction that it does not have, or whose operands it refuses, or an assertion in a \
                 kernel stopped it (then a line above names file and line)"
            }
            Self::Assertion => "an assertion in a kernel does not hold; a line above names file and line",
            Self::Corruption => {
                "a kernel's stack, program counter or address was overwritten, or its stack is too small"
            }
            Self::LaunchFailure => {
                "a kernel ended with an exception that has no class of its own, often an access outside of shared or local \
                 memory, or an assertion (then a line above names file and line)"
            }
            Self::OutOfResources => "a block needs more registers or shared memory than a multiprocessor has",
            Self::Timeout => {
                "a kernel ran longer than the system allows on a device that also draws the screen"
            }
            Self::Ecc => "the device's memory is damaged, whatever ran there",
            Self::Library => {
                "the library could not run its kernel; mostly work queued before it failed already"
            }
        }
    }

    /// The tool of compute-sanitizer that finds it.
    pub fn tool(self) -> Option<&'static str> {
        match self {
            Self::OutOfResources | Self::Timeout | Self::Ecc => None,
            _ => Some("memcheck"),
        }
    }

    /// What to do, first things first. `named` says whether the launch at fault is known.
    pub fn steps(self, named: bool) -> Vec<String> {
        let mut steps: Vec<String> = Vec::new();
        let mut step = |text: &str| steps.push(text.to_owned());
        match self {
            Self::Ecc => {
                step("nvidia-smi -q -d ECC,ROW_REMAPPER shows what the device counted; reset or replace it");
                step(
                    "go on from the last checkpoint on another device (--device cuda:N); the weights in it are not affected",
                );
                return steps;
            }
            Self::Timeout => {
                step(
                    "compute on a device that draws no screen, or with a smaller batch, so that kernels are shorter",
                );
                step(
                    "or lift the limit: TdrDelay in the registry of Windows, Option \"Interactive\" \"0\" in xorg.conf",
                );
                return steps;
            }
            Self::OutOfResources => {
                step(
                    "take fewer threads or less shared memory per block; gradewise kernels NAME lists what a kernel needs",
                );
                return steps;
            }
            _ => {}
        }
        if !named {
            step(
                "run it again in debug mode, which names the launch: gradewise debug -- COMMAND, or \
                 GRADEWISE_DEBUG_CUDA=1 for any program (GRADEWISE_LAUNCH_BLOCKING=1 only waits for each launch)",
            );
        }
        match self {
            Self::IllegalInstruction => {
                step("gradewise doctor: `code` says whether this build has machine code for the device");
                step(
                    "remove compiled kernels that may be damaged: the folder of GRADEWISE_RTC_CACHE, or gradewise/ in the \
                     user's cache",
                );
            }
            Self::Library => step("compare without the library: leave out GRADEWISE_CUBLASLT=1"),
            _ => {}
        }
        if let Some(tool) = self.tool() {
            step(&format!("see which thread and address: {}", sanitizer(tool)));
        }
        if self == Self::LaunchFailure {
            step(&format!("then, for barriers that not all threads reach: {}", sanitizer("synccheck")));
        }
        if self == Self::IllegalInstruction || self == Self::Corruption {
            step(
                "if it comes and goes, suspect the device: nvidia-smi -q -d ECC,PERFORMANCE, or --device cuda:N for another",
            );
        }
        steps
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to do about an error of loading: of the driver, of a device, or of an image for it. `None` for errors of other kinds.
#[must_use]
pub fn setup_remedy(source: &Error) -> Option<&'static str> {
    Some(match source.code()? {
        CUresult::ERROR_NO_DEVICE => {
            "check that CUDA_VISIBLE_DEVICES hides none, that nvidia-smi lists a device, and that a container was started with \
             --gpus all"
        }
        CUresult::ERROR_INVALID_DEVICE => {
            "choose a device that nvidia-smi lists and CUDA_VISIBLE_DEVICES does not hide"
        }
        CUresult::ERROR_INVALID_CONTEXT => {
            "this process has lost its context on the device: it was forked after CUDA began, or another library reset the device; \
             start a new process (Python: multiprocessing's method spawn)"
        }
        CUresult::ERROR_INVALID_IMAGE | CUresult::ERROR_INVALID_SOURCE => {
            "the kernels are damaged: remove those that were compiled at run time (the folder of GRADEWISE_RTC_CACHE, or \
             gradewise/ in the user's cache), and build the program again"
        }
        CUresult::ERROR_NO_BINARY_FOR_GPU => {
            "the kernels are for other devices: rebuild with this one's compute capability in GRADEWISE_CUDA_ARCHS"
        }
        CUresult::ERROR_INVALID_PTX => {
            "the driver could not compile the kernels for this device: update the NVIDIA driver, or rebuild with the device's \
             compute capability in GRADEWISE_CUDA_ARCHS"
        }
        CUresult::ERROR_UNSUPPORTED_PTX_VERSION => {
            "the kernels were compiled by a newer CUDA than the driver knows: update the NVIDIA driver, or rebuild with an older \
             toolkit (GRADEWISE_NVCC)"
        }
        CUresult::ERROR_NOT_SUPPORTED => {
            "the driver or the device does not offer this (virtual GPUs and WSL lack some calls): update the NVIDIA driver"
        }
        CUresult::ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver was updated under the running kernel module; reboot"
        }
        CUresult::ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "remove the compatibility libraries (cuda-compat) from the library path, or update the driver"
        }
        _ => return None,
    })
}

/// The text after the driver's message about a kernel of the user's that cannot be loaded on a device of this compute capability: as
/// [`advice`], where it is not about the kernels of this library.
pub(crate) fn custom_advice(source: &Error, (major, minor): (u32, u32)) -> String {
    let compile =
        format!("compile it with -arch=sm_{major}{minor}, or give its source to CudaKernel::new, which does");
    let remedy = match source.code() {
        Some(CUresult::ERROR_INVALID_IMAGE | CUresult::ERROR_INVALID_SOURCE) => {
            format!("the code is damaged, or none for GPUs: {compile}")
        }
        Some(CUresult::ERROR_NO_BINARY_FOR_GPU) => format!("the code is for other devices: {compile}"),
        Some(CUresult::ERROR_INVALID_PTX) => {
            format!(
                "the driver could not compile the PTX: ptxas names the line; update the NVIDIA driver, or {compile}"
            )
        }
        Some(CUresult::ERROR_UNSUPPORTED_PTX_VERSION) => {
            format!(
                "the PTX was written by a newer CUDA than the driver knows: update the NVIDIA driver, or {compile}"
            )
        }
        _ => return advice(source, &[]),
    };
    format!("\n  {remedy}\n  gradewise doctor checks driver, devices and build")
}

/// The command line that runs this program, with the arguments it was given, under a tool of compute-sanitizer.
pub fn sanitizer(tool: &str) -> String {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    format!("compute-sanitizer --tool {tool} {}", command(&arguments))
}

/// The command that is debugged, without what debugs it, in the words of a shell.
fn command(arguments: &[String]) -> String {
    let debugged =
        arguments.get(1).is_some_and(|argument| argument == "debug") && arguments.iter().any(|a| a == "--");
    let kept = arguments.iter().enumerate().filter(|(index, argument)| {
        !(debugged && (*index == 1 || argument.as_str() == "--")) && argument.as_str() != "--debug-cuda"
    });
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = kept.map(|(_, argument)| {
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The text after the driver's message; empty for errors that neither work nor loading caused.
pub(crate) fn advice(source: &Error, launches: &[Launch]) -> String {
    let Some(fault) = Fault::of(source) else {
        let remedy = setup_remedy(source);
        return remedy.map_or_else(String::new, |remedy| {
            format!("\n  {remedy}\n  gradewise doctor checks driver, devices and build")
        });
    };
    let failed = launches.iter().rev().find(|launch| launch.outcome == Outcome::Failed);
    let mut text = format!("\n  {fault}: {}", fault.meaning());
    let cause = match failed {
        Some(launch) => format!("launch #{} below; every launch before it was waited for", launch.number),
        None if fault == Fault::Ecc => "the device, not the program".to_owned(),
        None => "this operation or one queued before it".to_owned(),
    };
    let _ = write!(text, "\n  cause: {cause}");
    for (index, step) in fault.steps(failed.is_some()).iter().enumerate() {
        let _ = write!(text, "\n  {}. {step}", index + 1);
    }
    if fault.is_sticky() {
        text += "\n  the context is lost: nothing works on the device any more in this process; start a new process";
    }
    if !launches.is_empty() {
        text += "\n  last launches:";
    }
    for launch in launches {
        let _ = write!(text, "\n    {launch}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: u32) -> Error {
        let (name, text) = ("NAME".to_owned(), String::new());
        Error::Call { call: "cuStreamSynchronize", code: CUresult(code), name, text }
    }

    #[test]
    fn every_class_has_its_meaning_and_a_next_step() {
        for (code, fault, part) in [
            (700, Fault::IllegalAddress, "--tool memcheck"),
            (716, Fault::MisalignedAddress, "--tool memcheck"),
            (715, Fault::IllegalInstruction, "gradewise doctor"),
            (710, Fault::Assertion, "--tool memcheck"),
            (714, Fault::Corruption, "suspect the device"),
            (719, Fault::LaunchFailure, "--tool synccheck"),
            (701, Fault::OutOfResources, "fewer threads"),
            (702, Fault::Timeout, "smaller batch"),
            (214, Fault::Ecc, "nvidia-smi"),
        ] {
            let source = call(code);
            assert_eq!(Fault::of(&source), Some(fault), "{code}");
            assert_eq!(source.code().unwrap().is_sticky(), fault.is_sticky(), "{code}");
            let text = advice(&source, &[]);
            assert!(text.contains(part) && text.contains(fault.meaning()), "{part}: {text}");
            assert_eq!(text.contains("start a new process"), fault.is_sticky(), "{text}");
        }
        assert_eq!((Fault::of(&call(1)), Fault::of(&call(2))), (None, None));
        assert_eq!(advice(&call(1), &[]), "");
    }

    #[test]
    fn errors_of_loading_have_a_next_step() {
        for (code, part) in [
            (100, "CUDA_VISIBLE_DEVICES"),
            (101, "nvidia-smi lists"),
            (200, "GRADEWISE_RTC_CACHE"),
            (201, "spawn"),
            (209, "GRADEWISE_CUDA_ARCHS"),
            (218, "update the NVIDIA driver"),
            (222, "GRADEWISE_NVCC"),
            (801, "virtual GPUs"),
            (803, "reboot"),
            (804, "cuda-compat"),
        ] {
            let text = advice(&call(code), &[]);
            assert!(text.contains(part) && text.contains("gradewise doctor"), "{code}: {text}");
        }
    }

    #[test]
    fn errors_of_loading_a_kernel_of_ones_own_have_a_next_step_too() {
        for (code, part) in [
            (100, "CUDA_VISIBLE_DEVICES"),
            (101, "nvidia-smi lists"),
            (200, "-arch=sm_86"),
            (209, "for other devices: compile it with -arch=sm_86"),
            (218, "ptxas"),
            (222, "newer CUDA"),
            (801, "virtual GPUs"),
            (803, "reboot"),
            (804, "cuda-compat"),
        ] {
            let text = custom_advice(&call(code), (8, 6));
            assert!(text.contains(part) && text.contains("gradewise doctor"), "{code}: {text}");
            assert!(!text.contains("GRADEWISE_CUDA_ARCHS"), "{code}: {text}");
        }
        assert!(custom_advice(&call(700), (8, 6)).contains("--tool memcheck"));
        assert_eq!(custom_advice(&call(1), (8, 6)), "");
    }

    #[test]
    fn a_library_that_fails_makes_earlier_work_suspect() {
        let status = |library, code| Error::Status { library, call: "f", code, text: String::new() };
        assert_eq!(Fault::of(&status("cuBLASLt, the matrix products of CUDA", 13)), Some(Fault::Library));
        assert_eq!(Fault::of(&status("cuBLASLt, the matrix products of CUDA", 15)), None);
        assert_eq!(Fault::of(&status("NVML", 13)), None);
        let text = advice(&status("cuBLASLt, the matrix products of CUDA", 13), &[]);
        assert!(
            text.contains("queued before it failed already") && text.contains("GRADEWISE_DEBUG_CUDA=1"),
            "{text}"
        );
    }

    #[test]
    fn the_launch_at_fault_is_pointed_at() {
        let launch = |number, outcome| Launch {
            number,
            thread: "main".into(),
            operation: "matmul",
            work: "gw_x <<<1, 2>>>".to_owned(),
            outcome,
        };
        let text = advice(&call(700), &[launch(7, Outcome::Done), launch(8, Outcome::Failed)]);
        assert!(text.contains("cause: launch #8 below") && text.contains("FAILED #8 matmul: gw_x"), "{text}");
        assert!(!text.contains("in debug mode, which names"), "{text}");
    }

    #[test]
    fn the_command_line_is_that_of_what_is_debugged() {
        let words = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        assert_eq!(command(&words("gradewise debug -- train nbody")), "gradewise train nbody");
        assert_eq!(command(&words("gradewise train nbody --debug-cuda a=b")), "gradewise train nbody a=b");
        assert_eq!(command(&words("gradewise debug --drill unwritten")), "gradewise debug --drill unwritten");
        assert_eq!(command(&["a".to_owned(), "it's".to_owned()]), r"a 'it'\''s'");
    }
}
