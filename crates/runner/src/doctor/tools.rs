//! Other tools on the machine: compilers, libraries, NVML, and the Windows Subsystem for Linux.

use super::report::{Check, gib};
use gradewise_ffi::{
    DeviceInfo, Nccl,
    nvml::{Clock, Device, Nvml, Process},
    nvrtc::Nvrtc,
};
use std::{
    env::{self, consts::EXE_SUFFIX},
    path::{Path, PathBuf},
    process::Command,
};

/// The nvcc that a build on this machine would use, and its version.
pub fn nvcc() -> (Check, Option<String>) {
    const NAME: &str = "nvcc";
    let Some(path) = nvcc_candidates().into_iter().find(|path| path.is_file()) else {
        let detail = "not found; only building with --features cuda needs it (scripts/get-nvcc installs it)";
        return (Check::info(NAME, detail), None);
    };
    let answer = Command::new(&path).arg("--version").output();
    let version = answer.ok().and_then(|answer| nvcc_version(&String::from_utf8_lossy(&answer.stdout)));
    match version {
        Some(version) => (Check::info(NAME, format!("{version}, {}", path.display())), Some(version)),
        None => {
            let detail = format!("{} does not tell its version", path.display());
            (
                Check::warn(
                    NAME,
                    detail,
                    "building with --features cuda will fail: name another in GRADEWISE_NVCC",
                ),
                None,
            )
        }
    }
}

/// The paths where the build looks for nvcc, in its order.
fn nvcc_candidates() -> Vec<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable("GRADEWISE_NVCC") {
        return vec![PathBuf::from(named)];
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    let mut folders: Vec<PathBuf> = homes.map(|home| Path::new(&home).join("bin")).collect();
    folders.extend(variable("PATH").iter().flat_map(env::split_paths));
    folders.extend(["/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/lib/cuda/bin"].map(PathBuf::from));
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")));
    let installed = cache.and_then(|cache| cache.join("gradewise/cuda").read_dir().ok());
    let mut installed: Vec<PathBuf> =
        installed.into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    installed.sort();
    folders.extend(installed.into_iter().rev());
    folders.into_iter().map(|folder| folder.join(format!("nvcc{EXE_SUFFIX}"))).collect()
}

/// The version in `release 13.0, V13.0.88`.
fn nvcc_version(answer: &str) -> Option<String> {
    let words = answer.lines().filter(|line| line.contains("release")).flat_map(str::split_whitespace);
    words.filter_map(|word| word.strip_prefix('V')).map(str::to_owned).next()
}

/// The run-time compiler, and its version.
pub fn nvrtc() -> (Check, Option<String>) {
    const NAME: &str = "NVRTC";
    let found = Nvrtc::load().and_then(|nvrtc| {
        let (major, minor) = nvrtc.version()?;
        Ok((format!("{major}.{minor}"), nvrtc.provider(), nvrtc.architectures().unwrap_or_default()))
    });
    match found {
        Ok((version, path, architectures)) => {
            let range = match (architectures.first(), architectures.last()) {
                (Some(first), Some(last)) => format!(", for sm_{first} to sm_{last}"),
                _ => String::new(),
            };
            (Check::info(NAME, format!("{version}{range}, {path}")), Some(version))
        }
        Err(error) => (
            Check::info(
                NAME,
                format!(
                    "not usable; algebras without embedded kernels go by tables, more slowly, and steps are not fused: {error}"
                ),
            ),
            None,
        ),
    }
}

/// NCCL, which training on several GPUs needs, and its version.
pub fn nccl() -> (Check, Option<String>) {
    const NAME: &str = "NCCL";
    let found = Nccl::load().and_then(|nccl| Ok((nccl.version()?, nccl.provider())));
    match found {
        Ok(((major, minor, patch), path)) => {
            let version = format!("{major}.{minor}.{patch}");
            (Check::info(NAME, format!("{version}, {path}")), Some(version))
        }
        Err(error) => {
            (Check::info(NAME, format!("not usable; only training on several GPUs needs it: {error}")), None)
        }
    }
}

/// NVML, with its version and the driver's.
pub fn nvml() -> (Check, Option<Nvml>) {
    const NAME: &str = "NVML";
    let versions = |nvml: &Nvml| Ok::<_, gradewise_ffi::Error>((nvml.version()?, nvml.driver_version()?));
    match Nvml::load().and_then(|nvml| versions(&nvml).map(|versions| (nvml, versions))) {
        Ok((nvml, (version, driver))) => {
            (Check::info(NAME, format!("{version}, of driver {driver}")), Some(nvml))
        }
        Err(error) => (
            Check::info(NAME, format!("not usable; temperatures and other processes are not shown: {error}")),
            None,
        ),
    }
}

/// The current activity of a device, and the other processes on it.
pub fn activity(nvml: &Nvml, info: &DeviceInfo) -> Vec<Check> {
    let name = format!("cuda:{}", info.ordinal);
    let device = match nvml.device_of(info) {
        Ok(device) => device,
        Err(error) => {
            return vec![Check::info(format!("{name} now"), format!("NVML does not tell: {error}"))];
        }
    };
    let mut checks = vec![now(&format!("{name} now"), &device)];
    match device.processes() {
        Ok(all) => checks.push(processes(&format!("{name} others"), &all)),
        Err(error) => {
            checks.push(Check::info(format!("{name} others"), format!("NVML does not tell: {error}")));
        }
    }
    checks
}

fn now(name: &str, device: &Device) -> Check {
    let mut parts = Vec::new();
    if let Ok(memory) = device.memory() {
        parts.push(format!("{} of {} free", gib(memory.free), gib(memory.total)));
    }
    parts.extend(device.temperature().map(|degrees| format!("{degrees} °C")));
    parts.extend(device.power().map(|watts| format!("{watts:.0} W")));
    for (clock, what) in [(Clock::Multiprocessor, "multiprocessors"), (Clock::Memory, "memory")] {
        if let (Ok(now), Ok(most)) = (device.clock(clock), device.max_clock(clock)) {
            parts.push(format!("{what} at {now} of {most} MHz"));
        }
    }
    parts.extend(device.utilization().map(|rates| format!("{} % busy", rates.gpu)));
    let detail = if parts.is_empty() { "NVML does not tell".to_owned() } else { parts.join(", ") };
    /// Throttling by power brake or heat: `nvmlClocksThrottleReasonHwSlowdown`, `SwThermalSlowdown`,
    /// `HwThermalSlowdown`, `HwPowerBrakeSlowdown`.
    const HELD_BACK: u64 = 8 | 32 | 64 | 128;
    if device.throttle_reasons().is_ok_and(|reasons| reasons & HELD_BACK != 0) {
        let advice = "check cooling and power supply; times measured now mean little";
        return Check::warn(name, format!("{detail}; clocks are held back by heat or a power brake"), advice);
    }
    Check::info(name, detail)
}

/// Lists the other processes. This is for information only: none is ever ended.
fn processes(name: &str, all: &[Process]) -> Check {
    const SHOWN: usize = 6;
    let others: Vec<&Process> = all.iter().filter(|process| process.pid != std::process::id()).collect();
    if others.is_empty() {
        return Check::info(name, "no other process computes here");
    }
    let show = |process: &&Process| {
        let name = process.name.as_deref().unwrap_or("?");
        let memory = process.memory.map_or_else(String::new, |bytes| format!(", {} MiB", bytes >> 20));
        format!("{} ({name}{memory})", process.pid)
    };
    let mut list: Vec<String> = others.iter().take(SHOWN).map(show).collect();
    if others.len() > SHOWN {
        list.push(format!("and {} more", others.len() - SHOWN));
    }
    let count = others.len();
    let plural = if count == 1 { "process computes" } else { "processes compute" };
    Check::warn(
        name,
        format!("{count} other {plural} here: {}", list.join(", ")),
        "results stay right, but memory and time are shared: wait for them, or choose another device (--device cuda:N)",
    )
}

/// The check of the Windows Subsystem for Linux; `None` elsewhere.
pub fn wsl() -> Option<Check> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    wsl_from(&read("/proc/version"), &read("/proc/meminfo"), Path::new("/dev/dxg").exists())
}

fn wsl_from(version: &str, memory: &str, gpu: bool) -> Option<Check> {
    const NAME: &str = "WSL";
    if !version.to_ascii_lowercase().contains("microsoft") {
        return None;
    }
    // The kernel of WSL 2 calls itself microsoft-standard-WSL2; WSL 1 has none of its own.
    if !version.contains("WSL2") && !version.contains("microsoft-standard") {
        return Some(Check::fail(
            NAME,
            "WSL 1, which has no access to GPUs",
            "in Windows: wsl --set-version DISTRIBUTION 2",
        ));
    }
    if !gpu {
        return Some(Check::fail(
            NAME,
            "WSL 2 without access to a GPU: /dev/dxg is missing",
            "in Windows: wsl --update, and install NVIDIA's Windows driver; install no Linux driver inside WSL",
        ));
    }
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let memory = kib.map_or_else(String::new, |kib| format!(", {} of main memory", gib(kib << 10)));
    Some(Check::info(
        NAME,
        format!(
            "WSL 2 with access to the GPU{memory}; for more (by default half of the machine's) write memory=32GB below \
             [wsl2] in .wslconfig in the Windows user's folder, then wsl --shutdown"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Verdict;

    #[test]
    fn windows_underneath_is_recognised() {
        let version = |name: &str| format!("Linux version {name} (gcc) #1 SMP");
        let memory = "MemTotal:       16777216 kB\nMemFree: 1 kB\n";
        assert_eq!(wsl_from(&version("6.8.0-45-generic"), memory, false), None);
        let two = "5.15.153.1-microsoft-standard-WSL2";
        let check = wsl_from(&version(two), memory, true).unwrap();
        assert_eq!(check.verdict, Verdict::Info);
        assert!(check.detail.contains("16.0 GiB") && check.detail.contains(".wslconfig"), "{check:?}");
        assert_eq!(wsl_from(&version(two), "", true).unwrap().verdict, Verdict::Info);
        let without = wsl_from(&version(two), memory, false).unwrap();
        assert!(without.verdict == Verdict::Fail && without.advice.unwrap().contains("wsl --update"));
        let one = wsl_from(&version("4.4.0-19041-Microsoft"), memory, false).unwrap();
        assert!(one.verdict == Verdict::Fail && one.advice.unwrap().contains("set-version"));
    }

    #[test]
    fn other_processes_are_listed_and_this_one_is_not() {
        let process = |pid, memory| Process { pid, name: Some("trainer".to_owned()), memory };
        let own = process(std::process::id(), None);
        assert_eq!(processes("cuda:0 others", std::slice::from_ref(&own)).verdict, Verdict::Info);
        let first = std::process::id() + 1;
        let mut all: Vec<Process> = (0..9).map(|n| process(first + n, Some(5 << 20))).collect();
        all.push(own);
        let check = processes("cuda:0 others", &all);
        assert_eq!(check.verdict, Verdict::Warn);
        for part in ["9 other processes", &format!("{first} (trainer, 5 MiB)"), "and 3 more"] {
            assert!(check.detail.contains(part), "`{part}` is not in: {check:?}");
        }
    }

    #[test]
    fn the_compilers_version_is_found() {
        let answer =
            "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n";
        assert_eq!(nvcc_version(answer).as_deref(), Some("13.0.88"));
        assert_eq!(nvcc_version("Version 3"), None);
    }
}
