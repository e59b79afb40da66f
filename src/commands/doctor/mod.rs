//! `doctor`: what works on this machine, and what to do about the rest.

mod driver;
mod report;
mod selftest;
mod tools;

use crate::{
    cli::Doctor,
    error::{Error, Result},
    output,
};
use gradewise_ffi::{DeviceInfo, Driver};
use gradewise_kernels::{Device, build_info};
use report::{Check, CudaInfo, Report, Versions};

pub fn run(arguments: &Doctor) -> Result<()> {
    let report = examine(arguments.quick);
    if arguments.json {
        let json = serde_json::to_string_pretty(&report).unwrap_or_default();
        output::print(&(json + "\n"))?;
    } else {
        output::print(&report.to_string())?;
    }
    match report.failed() {
        0 => Ok(()),
        _ if arguments.warn => Ok(()),
        1 => Err(Error::Failed("1 check fails".to_owned())),
        failed => Err(Error::Failed(format!("{failed} checks fail"))),
    }
}

/// Everything that is known of this machine's GPUs; without the self-test if `quick`.
pub fn examine(quick: bool) -> Report {
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
    let mut checks = vec![driver::build(&build), driver::driver(&loaded)];
    let (nvml_check, nvml) = tools::nvml();
    if let Some(nvml) = &nvml {
        cuda.versions.nvml = nvml.version().ok();
        cuda.versions.driver = nvml.driver_version().ok();
    }
    if let Ok(driver) = &loaded {
        // Asked for when it was loaded, and answered.
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
            // Before this process computes there, too.
            checks.extend(nvml.iter().flat_map(|nvml| tools::activity(nvml, &info)));
            let usable = build.code_for(info.compute_capability).is_some();
            if ordinal == 0 {
                cuda = with_current(cuda, &info, usable);
            }
            checks.push(self_test(ordinal, usable, quick));
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
    Report::new(cuda, checks)
}

/// With what is known of the device that `--device cuda` means.
fn with_current(cuda: CudaInfo, info: &DeviceInfo, usable: bool) -> CudaInfo {
    let (major, minor) = info.compute_capability;
    CudaInfo {
        available: usable,
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
