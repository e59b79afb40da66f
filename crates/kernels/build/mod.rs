//! The build script, in parts that tests can reach.

pub mod cache;
pub mod compile;
pub mod images;
pub mod launch_headers;
pub mod launch_table;
pub mod report;
pub mod sources;
pub mod targets;
pub mod toolkit;

use std::{env, ffi::OsString, fs, path::PathBuf};

/// What went wrong and how to mend it, for people to read.
pub type Result<T> = std::result::Result<T, String>;

/// A variable of the environment; the build is repeated when it changes.
pub fn variable(name: &str) -> Option<OsString> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> Result<Option<String>> {
    variable(name).map(|value| value.into_string().map_err(|_| format!("{name} is not UTF-8"))).transpose()
}

fn required(name: &str) -> Result<PathBuf> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set; build with cargo"))
}

/// Writes `images.rs`: with the feature `cuda` the machine code of every kernel, always the headers for NVRTC; `launches.rs`, how kernels are
/// launched; and `csrc.rs`, what launchers and kernels agree on.
pub fn run() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let out = required("OUT_DIR")?;
    let sources = sources::Sources::read(&sources::root(&required("CARGO_MANIFEST_DIR")?))?;
    println!("cargo::rerun-if-changed={}", sources.root.join("launch_table.cpp").display());
    for path in sources.watched() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let (mut debug, mut launches) = (false, Vec::new());
    let kernels = if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        let toolkit = toolkit::Toolkit::find(&toolkit::Search::from_environment())?;
        // Assertions in kernels: the line of what fails, and registers as they come.
        debug = text("GRADEWISE_DEBUG_CUDA")?.is_some_and(|value| value == "1");
        let mut flags = text("GRADEWISE_NVCC_FLAGS")?.unwrap_or_default();
        if debug {
            flags += " -DGRADEWISE_DEBUG -lineinfo";
        }
        let options = compile::Options {
            targets: targets::choose(text("GRADEWISE_CUDA_ARCHS")?.as_deref(), &toolkit)?,
            flags,
            allow_spills: debug || text("GRADEWISE_ALLOW_SPILLS")?.is_some_and(|value| value == "1"),
            jobs: env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1),
            cache: cache::directory("kernels").unwrap_or_else(|| out.join("kernels")),
        };
        let kernels = compile::all(&sources, &toolkit, &options)?;
        launches = launch_table::make(&sources, &toolkit, &out)?;
        launch_table::require(&launches, &kernels.binaries)?;
        Some(kernels)
    } else {
        None
    };
    let report = kernels.as_ref().map(compile::Kernels::report).unwrap_or_default();
    write(&out.join("kernels.txt"), &report)?;
    write(&out.join("launches.rs"), &launch_table::generate(&launches))?;
    write(&out.join("csrc.rs"), &launch_headers::generate(&sources)?)?;
    write(&out.join("images.rs"), &images::generate(kernels.as_ref(), &sources, &out, debug)?)
}

fn write(path: &std::path::Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
