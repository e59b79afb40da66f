//! Checks of this machine, with advice about failures.

mod container;
mod driver;
mod report;
mod selftest;
mod tools;

use crate::output;
pub use container::container;
use gradewise_ffi::{DeviceInfo, Driver};
use gradewise_kernels::{Device, DeviceName, build_info};
pub use report::Check;
use report::{CudaInfo, Report, Versions};
use std::sync::atomic::{AtomicBool, Ordering};

/// Examines the GPUs of this machine; without the self-test if `quick`.
pub fn examine(quick: bool) -> Report {
    examine_testing(quick, |_| !quick)
}

/// Whether this process has shown its information block.
static INTRODUCED: AtomicBool = AtomicBool::new(false);

/// Marks the information block as shown; returns whether it had been shown before.
pub fn is_introduced() -> bool {
    INTRODUCED.swap(true, Ordering::Relaxed)
}

/// Shows the introduction of debug mode, once per process: the information block, and the self-test of the selected device (`cpu`, `cuda`
/// or `cuda:N`). A failed test is only a warning, because the command that follows is being debugged.
pub fn introduce(device: DeviceName) {
    if is_introduced() {
        return;
    }
    let ordinal = device.ordinal();
    let report = examine_testing(true, |tested| Some(tested) == ordinal);
    introduction(&report, ordinal).iter().for_each(|text| output::note(text));
}

/// The information block and, for a device, its self-test; a failed test is followed by a warning.
fn introduction(report: &Report, ordinal: Option<usize>) -> Vec<String> {
    let mut said = vec![report.information()];
    let name = ordinal.map(|ordinal| format!("cuda:{ordinal} self-test"));
    if let Some(test) = report.self_tests().find(|test| Some(&test.check) == name.as_ref()) {
        said.push(test.to_string());
        if test.is_failed() {
            said.push(
                format!(
                    "warning: the initialisation test fails, so that what follows may be wrong; {} doctor says more",
                    output::program()
                ),
            );
        }
    }
    said
}

/// The processor: threads, instruction set and, unless `quick`, every operator once in f32 against f64.
fn processor(quick: bool) -> Check {
    const NAME: &str = "cpu";
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let about = format!("{threads} threads, {}", instructions());
    if quick {
        return Check::ok(NAME, format!("{about}; self-test left out"));
    }
    match selftest::run(&Device::Cpu) {
        Check { advice: Some(advice), detail, .. } => Check::fail(NAME, format!("{about}; {detail}"), advice),
        Check { detail, .. } => Check::ok(NAME, format!("{about}; self-test: {detail}")),
    }
}

/// The widest vector instructions of the processor.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return "AVX2";
        }
        "no AVX2"
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH
}

/// As [`examine`], with the self-test of those devices whose number `tests` accepts.
fn examine_testing(quick: bool, tests: impl Fn(usize) -> bool) -> Report {
    let build = build_info();
    let loaded = Driver::load();
    let mut cuda = CudaInfo {
        versions: Versions {
            gradewise: env!("CARGO_PKG_VERSION").to_owned(),
            kernels: (build.kernels > 0).then(|| build.toolkit.to_owned()),
            ..Versions::default()
        },
        ..CudaInfo::default()
    };
    let expected = driver::is_expected(&build, &loaded);
    let mut checks =
        vec![processor(quick), driver::build(&build, expected), driver::driver(&loaded, expected)];
    let (nvml_check, nvml) = tools::nvml();
    if let Some(nvml) = &nvml {
        cuda.versions.nvml = nvml.version().ok();
        cuda.versions.driver = nvml.driver_version().ok();
    }
    if let Ok(driver) = &loaded {
        // The driver answered this call when it was loaded.
        let served = driver.version().unwrap_or_default();
        cuda.versions.cuda = Some(format!("{}.{}", served.0, served.1));
        checks.push(driver::compatible(served, &build));
        cuda.count = driver.device_count().unwrap_or(0);
        for ordinal in 0..cuda.count {
            let name = format!("cuda:{ordinal}");
            let info = match DeviceInfo::new(driver, ordinal) {
                Ok(info) => info,
                Err(error) => {
                    checks.push(Check::fail(
                        name,
                        error.to_string(),
                        "nvidia-smi -q should tell why; reset the device",
                    ));
                    continue;
                }
            };
            checks.extend(driver::device(&info, served, &build));
            // Queried before this process uses the device, too.
            checks.extend(nvml.iter().flat_map(|nvml| tools::activity(nvml, &info)));
            let usable = build.code_for(info.compute_capability).is_some();
            let test = self_test(ordinal, usable, !tests(ordinal));
            if ordinal == 0 {
                cuda = with_current(cuda, &info, is_available(usable, &test));
            }
            checks.push(test);
        }
    }
    let (nvcc, nvcc_version) = tools::nvcc();
    let (nvrtc, nvrtc_version) = tools::nvrtc();
    cuda.versions.nvcc = nvcc_version;
    cuda.versions.nvrtc = nvrtc_version;
    let (nccl, nccl_version) = tools::nccl();
    cuda.versions.nccl = nccl_version;
    checks.extend([nvml_check, nvcc, nvrtc, nccl]);
    checks.extend(tools::wsl());
    checks.extend(container::check(cuda.count, expected));
    Report::new(cuda, checks)
}

/// Whether a device is usable: kernels run there and, if they were tested, give correct results.
fn is_available(usable: bool, test: &Check) -> bool {
    usable && !test.is_failed()
}

/// Adds the properties of the device that `--device cuda` selects.
fn with_current(cuda: CudaInfo, info: &DeviceInfo, available: bool) -> CudaInfo {
    let (major, minor) = info.compute_capability;
    CudaInfo {
        available,
        current: Some(info.ordinal),
        name: Some(info.name.clone()),
        compute_capability: Some(format!("{major}.{minor}")),
        memory: Some(info.memory),
        ..cuda
    }
}

fn self_test(ordinal: usize, usable: bool, quick: bool) -> Check {
    let name = format!("cuda:{ordinal} self-test");
    if quick || !usable {
        let why = if quick { "left out" } else { "not run: no code for this device" };
        return Check::info(name, why);
    }
    match Device::cuda(ordinal) {
        Ok(device) => selftest::run(&device),
        Err(error) => Check::fail(
            name,
            error.to_string(),
            "if the memory is taken, wait for the processes that have it; otherwise see the checks above",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_mode_shows_the_test_of_the_device_in_use_and_warns_if_it_fails() {
        let checks = vec![
            Check::fail("cuda:0 self-test", "sgp is off by 1.0e0", "advice"),
            Check::ok("cuda:1 self-test", "all agree"),
        ];
        let report = Report::new(CudaInfo::default(), checks);
        let said = introduction(&report, Some(0));
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("[CUDA Info]") && !said[0].contains("[Checks]"), "{said:?}");
        assert!(said[1].starts_with("FAIL cuda:0 self-test") && said[2].starts_with("warning: "), "{said:?}");
        assert_eq!(introduction(&report, Some(1)).len(), 2, "the other device's failure is not this one's");
        assert_eq!(introduction(&report, None).len(), 1, "the CPU has no such test");
    }

    #[test]
    fn a_device_that_computes_something_else_is_not_available() {
        let [passed, left_out] = [Check::ok("cuda:0 self-test", "agrees"), self_test(0, true, true)];
        let failed = Check::fail("cuda:0 self-test", "72 of 72 operators fail", "suspect it");
        assert!(is_available(true, &passed) && is_available(true, &left_out));
        assert!(!is_available(true, &failed) && !is_available(false, &left_out));
    }
}
