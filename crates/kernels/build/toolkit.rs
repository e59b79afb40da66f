//! Finding nvcc and asking what it can do.

use super::{Result, cache, variable};
use std::{
    env::{self, consts::EXE_SUFFIX},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where to look for nvcc, in this order.
#[derive(Default)]
pub struct Search {
    /// `GRADEWISE_NVCC`: the compiler itself, which must be there if it is named.
    pub explicit: Option<OsString>,
    /// `CUDA_HOME` and `CUDA_PATH`.
    pub homes: Vec<PathBuf>,
    /// `PATH`.
    pub path: Option<OsString>,
    /// Directories that hold toolkits: one of them itself, or by the name of its version.
    pub usual: Vec<PathBuf>,
}

impl Search {
    /// What the environment says, then the places where installers put a toolkit, `scripts/get-nvcc` last.
    pub fn from_environment() -> Self {
        let mut usual = Vec::new();
        if cfg!(windows) {
            let programs = variable("ProgramFiles").map(PathBuf::from);
            usual.extend(programs.map(|programs| programs.join("NVIDIA GPU Computing Toolkit").join("CUDA")));
        } else {
            usual.extend(["/usr/local/cuda", "/usr/local", "/opt/cuda", "/usr/lib/cuda"].map(PathBuf::from));
        }
        usual.extend(cache::directory("cuda"));
        Self {
            explicit: variable("GRADEWISE_NVCC"),
            homes: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(PathBuf::from).collect(),
            path: variable("PATH"),
            usual,
        }
    }

    /// The compiler's path.
    pub fn nvcc(&self) -> Result<PathBuf> {
        if let Some(explicit) = &self.explicit {
            let path = PathBuf::from(explicit);
            return if path.is_file() {
                Ok(path)
            } else {
                Err(format!(
                    "GRADEWISE_NVCC names {}, which is not a file; give nvcc's own path",
                    path.display()
                ))
            };
        }
        let in_path = self.path.iter().flat_map(|path| env::split_paths(path).collect::<Vec<_>>());
        let mut candidates: Vec<PathBuf> =
            self.homes.iter().map(|home| home.join("bin")).chain(in_path).collect();
        for place in &self.usual {
            candidates.push(place.join("bin"));
            candidates.extend(versions(place).into_iter().map(|home| home.join("bin")));
        }
        let nvcc = format!("nvcc{EXE_SUFFIX}");
        candidates.into_iter().map(|directory| directory.join(&nvcc)).find(|path| path.is_file()).ok_or_else(|| {
            let usual: Vec<_> = self.usual.iter().map(|place| place.display().to_string()).collect();
            format!(
                "the feature `cuda` needs NVIDIA's compiler nvcc, which is not in CUDA_HOME, CUDA_PATH, PATH, {}\n\
                 get it with scripts/get-nvcc (from PyPI, no root rights needed), or install the CUDA toolkit\n\
                 (https://developer.nvidia.com/cuda-downloads), or name it in GRADEWISE_NVCC\n\
                 without the feature `cuda` everything builds for the CPU",
                usual.join(", ")
            )
        })
    }
}

/// Toolkits in a directory, by the version in their names (`cuda-12.8`, `13.0.88`, `v13.0`), the newest first.
fn versions(place: &Path) -> Vec<PathBuf> {
    let number = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        numbers(name.strip_prefix("cuda-").or_else(|| name.strip_prefix('v')).unwrap_or(name))
    };
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let mut found: Vec<_> =
        entries.flatten().filter_map(|entry| Some((number(&entry.path())?, entry.path()))).collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

/// A compiler and what it supports.
#[derive(Debug)]
pub struct Toolkit {
    /// Path of nvcc.
    pub nvcc: PathBuf,
    /// Its version, such as `13.0.88`.
    pub version: String,
    /// The architectures it has code generators for, such as `90`.
    pub architectures: Vec<String>,
}

impl Toolkit {
    /// Finds nvcc and asks it.
    pub fn find(search: &Search) -> Result<Self> {
        let nvcc = search.nvcc()?;
        println!("cargo::rerun-if-changed={}", nvcc.display());
        let output = ask(&nvcc, "--version")?;
        let version = parse_version(&output)
            .ok_or_else(|| format!("{} --version does not tell its version:\n{output}", nvcc.display()))?;
        if numbers(&version).is_none_or(|numbers| numbers < vec![12]) {
            return Err(format!(
                "{} is version {version}; 12.0 or newer is needed (scripts/get-nvcc installs one)",
                nvcc.display()
            ));
        }
        let architectures = parse_architectures(&ask(&nvcc, "--list-gpu-code")?);
        Ok(Self { nvcc, version, architectures })
    }

    /// Whether it compiles for a target such as `90a`; the letter is a variant that every supporting compiler has.
    pub fn supports(&self, target: &str) -> bool {
        let base = target.trim_end_matches(['a', 'f']);
        self.architectures.iter().any(|architecture| architecture == base)
    }

    /// The first number of the version.
    pub fn major(&self) -> u32 {
        numbers(&self.version).and_then(|numbers| numbers.first().copied()).unwrap_or(0)
    }
}

fn ask(nvcc: &Path, question: &str) -> Result<String> {
    let output = Command::new(nvcc)
        .arg(question)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", nvcc.display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{} {question}: {}\n{}",
        nvcc.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The version in the answer to `nvcc --version`: `release 13.0, V13.0.88`.
pub fn parse_version(answer: &str) -> Option<String> {
    let words = answer.lines().filter(|line| line.contains("release")).flat_map(str::split_whitespace);
    let version =
        |word: &str| word.strip_prefix('V').filter(|version| numbers(version).is_some()).map(str::to_owned);
    words.filter_map(version).next()
}

/// The architectures in the answer to `nvcc --list-gpu-code`: a line `sm_90` each.
pub fn parse_architectures(answer: &str) -> Vec<String> {
    answer.split_whitespace().filter_map(|word| word.strip_prefix("sm_")).map(str::to_owned).collect()
}
