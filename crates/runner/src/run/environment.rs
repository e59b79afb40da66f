//! A description of the machine, for an issue.

use crate::doctor;
use gradewise_kernels::build_info;
use std::{env, fmt::Write, fs};

/// Prefixes of environment variables that change the behaviour of this program or its libraries.
const PREFIXES: [&str; 9] =
    ["GRADEWISE_", "CUDA_", "NCCL_", "NVIDIA_", "CUBLAS", "RAYON_", "RUST_", "SLURM_", "LD_LIBRARY_PATH"];

/// Versions, system, processor, memory and environment variables, one per line.
pub fn describe() -> String {
    let build = build_info();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<12}{value}");
    };
    line("gradewise", env!("CARGO_PKG_VERSION"));
    line("build", if cfg!(debug_assertions) { "with debug assertions" } else { "without debug assertions" });
    match build.kernels {
        0 => line("kernels", "none: built without the feature cuda"),
        count => line(
            "kernels",
            &format!(
                "{count} for {} and PTX of {}, by CUDA {}",
                build.targets.join(" "),
                build.ptx,
                build.toolkit
            ),
        ),
    }
    line("system", &format!("{} {}", env::consts::OS, env::consts::ARCH));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str, separator: char| {
        let lines = text.lines().filter_map(|line| line.split_once(separator));
        lines
            .filter(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().trim_matches('"').to_owned())
            .next()
    };
    for (name, value) in [
        ("release", field(&read("/etc/os-release"), "PRETTY_NAME", '=')),
        ("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned())),
        ("processor", field(&read("/proc/cpuinfo"), "model name", ':')),
        ("memory", field(&read("/proc/meminfo"), "MemTotal", ':')),
        ("available", field(&read("/proc/meminfo"), "MemAvailable", ':')),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            line(name, &value);
        }
    }
    line("container", &doctor::container().unwrap_or_else(|| "none".to_owned()));
    line("cores", &std::thread::available_parallelism().map_or(0, usize::from).to_string());
    let mut variables: Vec<(String, String)> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    variables.sort();
    for (name, value) in variables {
        let _ = writeln!(text, "variable    {name}={value}");
    }
    text
}
