//! A description of the machine, for the folder of a run and for an issue.

use crate::doctor;
use gradewise_kernels::build_info;
use std::{env, fmt::Write, fs};

/// Prefixes of environment variables that change the behaviour of this program or its libraries.
const PREFIXES: [&str; 9] =
    ["GRADEWISE_", "CUDA_", "NCCL_", "NVIDIA_", "CUBLAS", "RAYON_", "RUST_", "SLURM_", "LD_LIBRARY_PATH"];

/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 9] =
    ["token", "secret", "password", "passwd", "apikey", "api_key", "api-key", "credential", "authorization"];

/// Whether a word announces a secret.
pub fn names_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|name| lower.contains(name))
}

/// The value of `key` in lines of `key<separator>value`.
fn field(text: &str, key: &str, separator: char) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}

/// The text of a file of the system; empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The model of the processor, if the system tells it.
pub fn processor() -> Option<String> {
    field(&read("/proc/cpuinfo"), "model name", ':')
}

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
    for (name, value) in [
        ("release", field(&read("/etc/os-release"), "PRETTY_NAME", '=')),
        ("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned())),
        ("processor", processor()),
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
        let value = if names_secret(&name) { "<secret>" } else { &value };
        let _ = writeln!(text, "variable    {name}={value}");
    }
    text
}
