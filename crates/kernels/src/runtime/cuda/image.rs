//! The kernels embedded at build time.

/// A fat binary with the kernels of one operation.
pub(crate) struct Image {
    /// The operation.
    pub name: &'static str,
    /// The fat binary.
    pub bytes: &'static [u8],
    /// The kernels in it.
    pub kernels: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));
include!(concat!(env!("OUT_DIR"), "/launches.rs"));

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared: usize,
}

/// How an embedded kernel is launched, as its own headers say (csrc/launch_table.cpp); `None` for kernels that are not in the table, all
/// without the feature `cuda`.
pub(crate) fn launch(kernel: &str) -> Option<Launch> {
    let found = LAUNCHES.binary_search_by_key(&kernel, |&(name, ..)| name).ok()?;
    let (_, threads, shared) = LAUNCHES[found];
    Some(Launch { threads, shared })
}

/// What this build has for CUDA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Architectures with machine code of their own, such as `90a`; empty without the feature `cuda`.
    pub targets: &'static [&'static str],
    /// Architecture of the PTX that drivers compile for all others; empty without it.
    pub ptx: &'static str,
    /// Version of the compiler that made the kernels, such as `13.0.88`; empty without kernels.
    pub toolkit: &'static str,
    /// Number of kernels, 0 without the feature `cuda`.
    pub kernels: usize,
    /// Whether the kernels have their assertions: built with `GRADEWISE_DEBUG_CUDA=1`.
    pub assertions: bool,
    /// A table of the registers, shared memory, stack and spills of each kernel on each architecture.
    pub report: &'static str,
}

/// Which of a build's code a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The machine code for this target.
    Machine(&'static str),
    /// The PTX for this target, compiled by the driver.
    Ptx(&'static str),
}

impl Code {
    /// The number of the architecture it was compiled for, such as 90 for `90a`.
    #[must_use]
    pub fn architecture(self) -> u32 {
        let (Self::Machine(target) | Self::Ptx(target)) = self;
        architecture(target).unwrap_or(0)
    }
}

fn architecture(target: &str) -> Option<u32> {
    target.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
}

/// What this build has for CUDA devices.
pub fn build_info() -> BuildInfo {
    let kernels = IMAGES.iter().map(|image| image.kernels.len()).sum();
    BuildInfo {
        targets: TARGETS,
        ptx: PTX,
        toolkit: TOOLKIT,
        kernels,
        assertions: ASSERTIONS,
        report: REPORT,
    }
}

/// What a kernel needs on one architecture, as its compiler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// The kernel's symbol.
    pub kernel: &'static str,
    /// The architecture, such as `90a`.
    pub target: &'static str,
    /// Most threads of a block: those that it is launched with, or fewer where rows are short.
    pub threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of static shared memory per block.
    pub shared: u32,
    /// Bytes of stack per thread.
    pub stack: u32,
    /// Bytes that registers are spilled to.
    pub spills: u32,
}

impl BuildInfo {
    /// The lines of the report.
    pub fn resources(&self) -> Vec<Resources> {
        let line = |line: &'static str| {
            let [kernel, target, threads, registers, shared, stack, spills] =
                line.split_whitespace().collect::<Vec<_>>()[..]
            else {
                return None;
            };
            let number = |word: &str| word.parse::<u32>().ok();
            let (registers, shared) = (number(registers)?, number(shared)?);
            Some(Resources {
                kernel,
                target,
                threads: number(threads)?,
                registers,
                shared,
                stack: number(stack)?,
                spills: number(spills)?,
            })
        };
        self.report.lines().filter_map(line).collect()
    }

    /// The code that a device of this compute capability (major, minor) runs; `None` if there is none for it.
    pub fn code_for(&self, capability: (u32, u32)) -> Option<Code> {
        code_for(capability, self.targets, self.ptx)
    }
}

/// What to do about a device of this compute capability (major, minor) for which a build has no machine code: rebuild, where a compiler
/// makes code for it.
#[must_use]
pub fn code_remedy((major, minor): (u32, u32)) -> String {
    if (major, minor) < (7, 0) {
        return "too old for the kernels, which need 7.0 or later; choose another device, or --device cpu"
            .to_owned();
    }
    let rebuild = format!("rebuild with GRADEWISE_CUDA_ARCHS={major}{minor}");
    // CUDA 13 no longer compiles for Volta.
    if (major, minor) < (7, 5) {
        format!("{rebuild} and a CUDA 12 toolkit (GRADEWISE_NVCC)")
    } else {
        rebuild
    }
}

/// Refuses a device that none of the embedded images runs on.
pub(crate) fn require_target(info: &gradewise_ffi::DeviceInfo) -> crate::Result<()> {
    if IMAGES.is_empty() || build_info().code_for(info.compute_capability).is_some() {
        return Ok(());
    }
    Err(crate::Error::UnsupportedDevice {
        device: info.ordinal,
        name: info.name.clone(),
        capability: info.compute_capability,
        targets: TARGETS.to_vec(),
        ptx: PTX,
    })
}

/// A device runs machine code of its major version and no newer minor one, the newest there is; machine code with a letter
/// on its very architecture only; or else, compiled by the driver, PTX of its capability or an earlier one.
fn code_for((major, minor): (u32, u32), targets: &[&'static str], ptx: &'static str) -> Option<Code> {
    let exact = |target: &str| target.ends_with(|c: char| c.is_ascii_alphabetic());
    let device = major * 10 + minor;
    let runs = |&target: &&'static str| {
        let version = architecture(target)?;
        let fits = if exact(target) { version == device } else { version / 10 == major && version <= device };
        fits.then_some((version, exact(target), target))
    };
    let machine = targets.iter().filter_map(runs).max().map(|(_, _, target)| Code::Machine(target));
    machine.or_else(|| architecture(ptx).filter(|&version| version <= device).map(|_| Code::Ptx(ptx)))
}

#[cfg(test)]
mod tests {
    use super::{BuildInfo, Code, Resources, build_info, code_for, code_remedy};
    use crate::Error;

    #[test]
    fn a_rebuild_is_advised_only_where_it_would_work() {
        assert!(code_remedy((5, 2)).contains("too old") && !code_remedy((5, 2)).contains("rebuild"));
        assert!(code_remedy((7, 0)).contains("ARCHS=70 and a CUDA 12 toolkit"));
        assert_eq!(code_remedy((8, 6)), "rebuild with GRADEWISE_CUDA_ARCHS=86");
        let unsupported = Error::UnsupportedDevice {
            device: 0,
            name: "an old card".to_owned(),
            capability: (5, 2),
            targets: vec!["90a"],
            ptx: "75",
        };
        let text = unsupported.to_string();
        assert!(text.contains("5.2") && text.contains("--device cpu") && !text.contains("rebuild"), "{text}");
    }

    #[test]
    fn the_report_is_read_without_its_head() {
        let report = "kernel  target threads registers  shared stack spills\ngw_gate_f32   90a   256  42   16   0   8\n";
        let info =
            BuildInfo { targets: &["90a"], ptx: "", toolkit: "", kernels: 1, assertions: false, report };
        let expected = Resources {
            kernel: "gw_gate_f32",
            target: "90a",
            threads: 256,
            registers: 42,
            shared: 16,
            stack: 0,
            spills: 8,
        };
        assert_eq!(info.resources(), [expected]);
        // Of this build, every kernel on every architecture.
        let info = build_info();
        assert!(info.resources().len() >= info.kernels);
    }

    #[test]
    fn machine_code_runs_on_its_major_version_and_ptx_on_anything_newer() {
        let machine = |target| Some(Code::Machine(target));
        assert_eq!(code_for((9, 0), &["90a"], ""), machine("90a"));
        assert_eq!(code_for((9, 0), &["90", "90a"], "75"), machine("90a"), "the more special one");
        assert_eq!(code_for((9, 1), &["90a"], ""), None, "code for one architecture only");
        assert_eq!(code_for((8, 9), &["80", "86"], ""), machine("86"), "the newest that runs");
        assert_eq!(code_for((8, 0), &["86"], ""), None);
        assert_eq!(code_for((9, 0), &["80"], ""), None);
        assert_eq!(code_for((12, 1), &["80"], "75"), Some(Code::Ptx("75")));
        assert_eq!(code_for((7, 0), &["75", "80"], "75"), None);
        assert_eq!(code_for((9, 0), &[], ""), None, "a build without kernels");
    }
}
