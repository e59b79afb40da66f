//! Running nvcc: one fat binary per file, for all targets at once, files side by side.

use super::{
    Result,
    cache::{self, Digest},
    report::{self, Usage},
    sources::Sources,
    targets::BASELINE,
    toolkit::Toolkit,
};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// How to compile.
pub struct Options {
    /// Architectures, such as `90a`.
    pub targets: Vec<String>,
    /// Further flags for nvcc.
    pub flags: String,
    /// Whether kernels that spill registers are accepted.
    pub allow_spills: bool,
    /// Number of compilers to run at once.
    pub jobs: usize,
    /// Where fat binaries are kept.
    pub cache: PathBuf,
}

/// The machine code of one source file.
pub struct Binary {
    /// Name of the source file, without extension.
    pub name: String,
    /// The fat binary.
    pub bytes: Vec<u8>,
    /// Resources of each kernel, for each target.
    pub usage: Vec<Usage>,
}

impl Binary {
    /// The kernels in it, in alphabetical order.
    pub fn kernels(&self) -> Vec<&str> {
        let mut kernels: Vec<&str> = self.usage.iter().map(|usage| usage.kernel.as_str()).collect();
        kernels.sort_unstable();
        kernels.dedup();
        kernels
    }
}

/// The machine code of all source files.
pub struct Kernels {
    /// In alphabetical order.
    pub binaries: Vec<Binary>,
    /// Architectures compiled for.
    pub targets: Vec<String>,
    /// Version of nvcc.
    pub version: String,
}

impl Kernels {
    /// The table of all kernels' resources.
    pub fn report(&self) -> String {
        let usage: Vec<Usage> = self.binaries.iter().flat_map(|binary| binary.usage.clone()).collect();
        report::table(&usage)
    }
}

/// Compiles every source file. Their names without directory tell the binaries apart, so they must differ.
pub fn all(sources: &Sources, toolkit: &Toolkit, options: &Options) -> Result<Kernels> {
    let files: Vec<(&str, &str)> = sources.kernels().collect();
    if files.is_empty() {
        return Err(format!(
            "{} has no *.cu; a build without kernels would be of no use",
            sources.root.display()
        ));
    }
    let mut paths = BTreeMap::new();
    for &(name, path) in &files {
        if let Some(other) = paths.insert(name, path) {
            return Err(format!("csrc/{other} and csrc/{path} have the same name; rename one of them"));
        }
    }
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, files.len()) {
            scope.spawn(|| {
                while let Some(&(name, path)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = one(sources, toolkit, options, name, path);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(name, result);
                }
            });
        }
    });
    cache::shrink(&options.cache);
    let (mut binaries, mut failures) = (Vec::new(), Vec::new());
    for result in results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values() {
        match result {
            Ok(binary) => binaries.push(binary),
            Err(failure) => failures.push(failure),
        }
    }
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    unique(&binaries)?;
    Ok(Kernels { binaries, targets: options.targets.clone(), version: toolkit.version.clone() })
}

/// Refuses a symbol that two files define: only one of them could be found.
pub fn unique(binaries: &[Binary]) -> Result<()> {
    let mut owners = BTreeMap::new();
    for binary in binaries {
        for kernel in binary.kernels() {
            if let Some(other) = owners.insert(kernel, &binary.name) {
                return Err(format!("{kernel} is in both {other}.cu and {}.cu", binary.name));
            }
        }
    }
    Ok(())
}

/// The flags of every compilation.
pub fn flags(toolkit: &Toolkit, options: &Options) -> Vec<String> {
    let mut flags: Vec<String> = [
        "--fatbin",
        "-std=c++17",
        "-O3",
        "-Xptxas",
        "-v",
        "-Werror",
        "all-warnings",
        "-Wno-deprecated-gpu-targets",
    ]
    .map(str::to_owned)
    .into();
    // Smallest; drivers older than 12.4 cannot unpack it, and only a compiler of 12.x still serves those.
    flags.push(
        if toolkit.major() >= 13 { "--compress-mode=size" } else { "-Xfatbin=-compress-all" }.to_owned(),
    );
    for target in &options.targets {
        flags.push("-gencode".to_owned());
        flags.push(format!("arch=compute_{target},code=sm_{target}"));
    }
    flags.push("-gencode".to_owned());
    flags.push(format!("arch=compute_{BASELINE},code=compute_{BASELINE}"));
    flags.extend(options.flags.split_whitespace().map(str::to_owned));
    flags
}

fn one(sources: &Sources, toolkit: &Toolkit, options: &Options, name: &str, path: &str) -> Result<Binary> {
    let flags = flags(toolkit, options);
    let mut digest = Digest::default().with(&toolkit.version);
    for flag in &flags {
        digest = digest.with(flag);
    }
    // nvcc reads these by itself.
    for variable in ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"] {
        println!("cargo::rerun-if-env-changed={variable}");
        digest = digest.with(env::var_os(variable).unwrap_or_default().as_encoded_bytes());
    }
    let key = sources.digest(path, digest)?.text();
    // The report is made with the binary; a cache that lost either, or has a report by an earlier build script, makes both again.
    let (binary, messages) = (format!("{name}-{key}.fatbin"), format!("{name}-{key}.txt"));
    let report = fs::read_to_string(options.cache.join(&messages)).unwrap_or_default();
    if !options.cache.join(&binary).is_file() || !report.contains(report::BOUNDS) {
        let _ = fs::remove_file(options.cache.join(&binary));
        let _ = fs::remove_file(options.cache.join(&messages));
    }
    let mut fresh = None;
    let bytes = cache::file(&options.cache, &binary, |out| {
        fresh = Some(compile(sources, toolkit, &flags, path, out)?);
        Ok(())
    })?;
    let messages = cache::file(&options.cache, &messages, |out| match fresh {
        Some(text) => {
            fs::write(out, text).map_err(|error| format!("cannot write {}: {error}", out.display()))
        }
        None => Err(format!("the cache {} changed during the build; build again", options.cache.display())),
    })?;
    let usage = report::parse(&String::from_utf8_lossy(&messages));
    if usage.is_empty() {
        return Err(format!("csrc/{path} has no kernel (an `extern \"C\" __global__` function)"));
    }
    if let Some(Usage { kernel, .. }) = usage.iter().find(|usage| usage.threads == 0) {
        return Err(format!(
            "csrc/{path}: {kernel} does not say how many threads its blocks have; give it __launch_bounds__"
        ));
    }
    if let (Some(spills), false) = (report::spills(&usage), options.allow_spills) {
        return Err(format!("csrc/{path}: {spills}"));
    }
    Ok(Binary { name: name.to_owned(), bytes, usage })
}

fn compile(
    sources: &Sources,
    toolkit: &Toolkit,
    flags: &[String],
    path: &str,
    out: &Path,
) -> Result<Vec<u8>> {
    // The portable code, of which a fat binary has compressed one, says how many threads blocks have.
    let kept = out.with_extension("kept");
    let io = |error| format!("cannot use {}: {error}", kept.display());
    fs::create_dir_all(&kept).map_err(io)?;
    let mut command = Command::new(&toolkit.nvcc);
    command.args(flags).arg("--keep").arg("--keep-dir").arg(&kept);
    command.arg("-I").arg(&sources.root).arg("-o").arg(out).arg(sources.root.join(path));
    let output = command.output();
    let bounds = fs::read_dir(&kept).and_then(|entries| {
        let mut bounds = String::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "ptx") {
                bounds += &report::bounds(&fs::read_to_string(path)?);
            }
        }
        Ok(bounds)
    });
    fs::remove_dir_all(&kept).map_err(io)?;
    let output = output.map_err(|error| format!("cannot run {}: {error}", toolkit.nvcc.display()))?;
    let messages = [output.stdout, output.stderr].concat();
    if output.status.success() {
        return Ok([messages, bounds.map_err(io)?.into_bytes()].concat());
    }
    // What ptxas says about kernels that compiled hides the error.
    let messages: Vec<String> = String::from_utf8_lossy(&messages)
        .lines()
        .filter(|line| !line.starts_with("ptxas info") && !line.ends_with(" bytes spill loads"))
        .map(str::to_owned)
        .collect();
    Err(format!(
        "nvcc {} failed on csrc/{path} ({}):\n{}\n(nvcc also needs a C++ compiler: g++ or clang++ in PATH, or NVCC_CCBIN)",
        toolkit.version,
        output.status,
        messages.join("\n")
    ))
}
