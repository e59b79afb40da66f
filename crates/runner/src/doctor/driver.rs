//! The driver, its devices, and whether this build's kernels run there.

use super::report::{Check, gib};
use gradewise_ffi::{DeviceInfo, Driver, Error, sys::CUresult};
use gradewise_kernels::{BuildInfo, Code, code_remedy, setup_remedy};

/// Whether a GPU is to be expected: kernels were built for it, or there is a driver or a device node. Without any, that nothing runs on a
/// GPU is no fault of the machine.
pub fn is_expected(build: &BuildInfo, driver: &Result<Driver, Error>) -> bool {
    const NODES: [&str; 3] = ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"];
    let is_missing = matches!(driver, Err(Error::Library { .. }));
    build.kernels > 0 || !is_missing || NODES.iter().any(|node| std::path::Path::new(node).exists())
}

/// The kernels of this build.
pub fn build(build: &BuildInfo, expected: bool) -> Check {
    const NAME: &str = "build";
    if build.kernels == 0 {
        let verdict = if expected { Check::fail } else { Check::optional };
        return verdict(
            NAME,
            "no CUDA kernels; the CPU works",
            "build with --features cuda; scripts/get-nvcc installs the compiler",
        );
    }
    Check::ok(
        NAME,
        format!(
            "{} kernels by CUDA {}: machine code for sm_{}, PTX for {}",
            build.kernels,
            build.toolkit,
            build.targets.join(", sm_"),
            if build.ptx.is_empty() { "none" } else { build.ptx }
        ),
    )
}

/// Whether the driver is usable.
pub fn driver(driver: &Result<Driver, Error>, expected: bool) -> Check {
    const NAME: &str = "driver";
    let error = match driver {
        Ok(driver) => return Check::ok(NAME, driver.provider()),
        Err(error) => error,
    };
    // The messages of the first two errors already contain advice.
    let advice = match error {
        Error::Library { library, tried, hint } => {
            let detail = format!("{library} was not found; tried {}", tried.join("; "));
            return match expected {
                true => Check::fail(NAME, detail, *hint),
                false => Check::optional(NAME, detail, *hint),
            };
        }
        Error::DriverTooOld { found, needed, .. } => {
            let detail =
                format!("serves CUDA {}.{}, at least {}.{} is needed", found.0, found.1, needed.0, needed.1);
            return Check::fail(NAME, detail, "update the NVIDIA driver");
        }
        error => match error.code() {
            Some(CUresult::ERROR_UNKNOWN) => "reload the kernel module (nvidia_uvm), or reboot",
            _ => setup_remedy(error).unwrap_or("reinstall the NVIDIA driver; nvidia-smi should work first"),
        },
    };
    Check::fail(NAME, error.to_string(), advice)
}

/// The first two numbers of a version such as `13.0.88`.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether a driver that supports CUDA `served` can run the kernels of `build`.
pub fn compatible(served: (u32, u32), build: &BuildInfo) -> Check {
    const NAME: &str = "driver version";
    let detail = format!("serves CUDA {}.{}", served.0, served.1);
    let Some(toolkit) = major_minor(build.toolkit) else {
        return Check::ok(NAME, format!("{detail}; there are no kernels that would need more"));
    };
    if served.0 < toolkit.0 {
        return Check::fail(
            NAME,
            format!("{detail}, the kernels were compiled by CUDA {}", build.toolkit),
            format!(
                "update the NVIDIA driver to one for CUDA {}, or rebuild with a CUDA {} toolkit (GRADEWISE_NVCC)",
                toolkit.0, served.0
            ),
        );
    }
    Check::ok(NAME, format!("{detail}; the kernels need {}.0 or newer", toolkit.0))
}

/// Two checks of a device: its properties, and the code it runs.
pub fn device(info: &DeviceInfo, served: (u32, u32), build: &BuildInfo) -> [Check; 2] {
    let (major, minor) = info.compute_capability;
    let name = format!("cuda:{}", info.ordinal);
    let what = Check::ok(
        &name,
        format!(
            "{}, compute capability {major}.{minor}, {}, {} multiprocessors, {} KiB of shared memory per block",
            info.name,
            gib(info.memory as u64),
            info.multiprocessors,
            info.max_shared_memory >> 10
        ),
    );
    [what, code(&format!("{name} code"), info.compute_capability, served, build)]
}

fn code(name: &str, (major, minor): (u32, u32), served: (u32, u32), build: &BuildInfo) -> Check {
    let rebuild = code_remedy((major, minor));
    if build.kernels == 0 {
        return Check::info(name, "none to run: this build has no CUDA kernels");
    }
    match build.code_for((major, minor)) {
        Some(Code::Machine(target)) => Check::ok(name, format!("runs the machine code for sm_{target}")),
        Some(Code::Ptx(target)) => {
            let detail = format!("has no machine code here; the driver would compile the PTX for {target}");
            let toolkit = major_minor(build.toolkit).unwrap_or((0, 0));
            if served < toolkit {
                let detail = format!(
                    "{detail}, but knows only that of CUDA {}.{}, not {}.{}",
                    served.0, served.1, toolkit.0, toolkit.1
                );
                return Check::fail(name, detail, format!("update the NVIDIA driver, or {rebuild}"));
            }
            Check::warn(
                name,
                format!("{detail} when they are first used"),
                format!("{rebuild} for faster code"),
            )
        }
        None => Check::fail(
            name,
            format!(
                "compute capability {major}.{minor} is served neither by the machine code for sm_{} nor by the PTX for {}",
                build.targets.join(", sm_"),
                build.ptx
            ),
            code_remedy((major, minor)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Verdict;

    const BUILD: BuildInfo = BuildInfo {
        targets: &["75", "90a"],
        ptx: "75",
        toolkit: "13.1.2",
        kernels: 9,
        assertions: false,
        report: "",
    };

    #[test]
    fn a_driver_serves_kernels_of_its_major_version_and_older() {
        for (served, verdict) in
            [((12, 9), Verdict::Fail), ((13, 0), Verdict::Ok), ((13, 1), Verdict::Ok), ((14, 0), Verdict::Ok)]
        {
            assert_eq!(compatible(served, &BUILD).verdict, verdict, "{served:?}");
        }
        let advice = compatible((12, 9), &BUILD).advice.unwrap();
        assert!(advice.contains("CUDA 13") && advice.contains("CUDA 12"), "{advice}");
    }

    #[test]
    fn the_code_for_a_device_is_named_or_missed() {
        let check = |capability, served| code("cuda:0 code", capability, served, &BUILD);
        let machine = check((9, 0), (13, 0));
        assert!(machine.verdict == Verdict::Ok && machine.detail.contains("sm_90a"), "{machine:?}");
        // PTX needs a driver that knows the PTX version of the toolkit; machine code does not.
        let new = check((12, 1), (13, 1));
        assert!(new.verdict == Verdict::Warn && new.advice.unwrap().contains("GRADEWISE_CUDA_ARCHS=121"));
        let behind = check((12, 1), (13, 0));
        assert!(behind.verdict == Verdict::Fail && behind.detail.contains("13.1"), "{behind:?}");
        let volta = check((7, 0), (13, 1));
        assert!(volta.verdict == Verdict::Fail && volta.advice.unwrap().contains("ARCHS=70 and a CUDA 12"));
        assert!(check((5, 2), (13, 1)).advice.unwrap().contains("too old"));
    }

    #[test]
    fn a_build_without_kernels_fails_with_how_to_get_them() {
        let empty =
            BuildInfo { targets: &[], ptx: "", toolkit: "", kernels: 0, assertions: false, report: "" };
        assert_eq!(build(&empty, false).verdict, Verdict::Info, "the CPU needs none");
        let check = build(&empty, true);
        assert!(check.verdict == Verdict::Fail && check.advice.unwrap().contains("--features cuda"));
        assert_eq!(compatible((12, 0), &empty).verdict, Verdict::Ok);
        assert_eq!(build(&BUILD, true).verdict, Verdict::Ok);
    }
}
