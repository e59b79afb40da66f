//! Kernels of algebras that were not compiled ahead, compiled on first use by NVRTC and kept on disk.
//!
//! The sources are those of the embedded kernels. A compiled kernel is kept in the user's cache directory
//! (`gradewise/rtc`; `GRADEWISE_RTC_CACHE` names another) under a digest of sources, options, architecture and compiler,
//! least recently used ones going first beyond a size limit. Several processes may share it.

#[path = "../../../build/cache.rs"]
#[allow(dead_code, reason = "shared with the build script")]
mod cache;

use super::image;
use crate::csrc::product_four_lanes;
use gradewise_core::Signature;
use gradewise_ffi::{
    Context, Module,
    nvrtc::{Nvrtc, Source},
};
use std::{ffi::OsString, fs, path::PathBuf, sync::OnceLock};

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Most generators of an algebra whose product is unrolled; larger ones go by tables.
const MOST_GENERATORS: u8 = 5;

/// The source text of an algebra's kernels for devices whose blocks may have `shared_memory` bytes; `None` for one too large to unroll.
fn source(signature: Signature, shared_memory: usize) -> Option<String> {
    let Signature { p, q, r } = signature;
    let generators = p + q + r;
    let kernels = match generators {
        0..=2 => format!("GW_SGP_8({p}, {q}, {r}, 4)"),
        3 => format!("GW_SGP_8({p}, {q}, {r}, 2)"),
        4 => format!("GW_SGP_16({p}, {q}, {r})"),
        MOST_GENERATORS => format!("GW_SGP_32({p}, {q}, {r})"),
        _ => return None,
    };
    let blades = 1 << generators.max(3);
    let mut families = vec![format!("SM90_{blades}")];
    // These need a central pseudoscalar that is invertible.
    let has_four_lanes = generators == MOST_GENERATORS && r == 0;
    if has_four_lanes {
        families.push("FOUR_LANES".to_owned());
    }
    if !has_four_lanes || shared_memory < product_four_lanes::MOST_SHARED {
        families.push(format!("PERSISTENT_{blades}"));
    }
    let by_rows: Vec<String> =
        families.iter().map(|family| format!("GW_SGP_{family}({p}, {q}, {r})\n")).collect();
    let headers = ["unrolled", "persistent", "sm90_persistent", "four_lanes"]
        .map(|name| format!("#include \"clifford/product/{name}.cuh\"\n"));
    Some(format!("{}{kernels}\n{}", headers.concat(), by_rows.concat()))
}

/// The run-time compiler, or why there is none.
pub(crate) fn compiler() -> Result<&'static Nvrtc, gradewise_ffi::Error> {
    static COMPILER: OnceLock<Result<Nvrtc, gradewise_ffi::Error>> = OnceLock::new();
    COMPILER
        .get_or_init(|| {
            Nvrtc::load().inspect_err(|error| {
                tracing::info!(
                    "algebras without kernels of their own go by tables, more slowly, and captured operators are not fused: {error}"
                );
            })
        })
        .as_ref()
        .map_err(Clone::clone)
}

fn directory() -> Option<PathBuf> {
    variable("GRADEWISE_RTC_CACHE").map(PathBuf::from).or_else(|| cache::directory("rtc"))
}

/// The machine code of an algebra's kernels for an architecture such as `sm_90`, from disk or compiled.
fn compile(compiler: &Nvrtc, architecture: &str, text: &str) -> Result<Vec<u8>, String> {
    compile_source(compiler, architecture, ("algebra.cu", text), &["--device-as-default-execution-space"])
}

/// The machine code of a source, which may include the headers of csrc, for an architecture such as `sm_90`, from disk or compiled
/// with further options. Messages call the source by its name.
pub(crate) fn compile_source(
    compiler: &Nvrtc,
    architecture: &str,
    (name, text): (&str, &str),
    further: &[&str],
) -> Result<Vec<u8>, String> {
    let target = format!("--gpu-architecture={architecture}");
    let mut options = vec![target.as_str(), "--std=c++17"];
    options.extend(further);
    let make = || {
        let source = Source { name, text, headers: image::SOURCES };
        compiler.compile(&source, &options).map(|compiled| compiled.image).map_err(|error| error.to_string())
    };
    let version = compiler.version().map_err(|error| error.to_string())?;
    let mut digest = cache::Digest::default().with(name).with(text).with(format!("{version:?}"));
    for option in &options {
        digest = digest.with(option);
    }
    for (path, text) in image::SOURCES {
        digest = digest.with(path).with(text);
    }
    let Some(directory) = directory() else { return make() };
    let file = format!("{}.cubin", digest.text());
    let refused = std::cell::RefCell::new(None);
    let write = |path: &std::path::Path| {
        let image = make().inspect_err(|error| *refused.borrow_mut() = Some(error.clone()))?;
        fs::write(path, image).map_err(|error| error.to_string())
    };
    let found = cache::file(&directory, &file, write).or_else(|reason| match refused.take() {
        Some(error) => Err(error),
        // A disk that is full or read-only is no reason not to compile.
        None => {
            tracing::warn!("compiled kernels are not kept: {reason}");
            make()
        }
    });
    cache::shrink(&directory);
    found
}

/// The architecture for which this crate's own kernels are compiled for a device.
pub(super) fn architecture(context: &Context) -> String {
    let (major, minor) = context.info().compute_capability;
    // Some kernels take what this one has and no later one.
    let exact = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{major}{minor}{exact}")
}

/// The kernels of an algebra that was not compiled ahead; `None`, with the reason in the log, if they cannot be had.
pub(super) fn module(context: &Context, signature: Signature) -> Option<Module> {
    let (text, compiler) = (source(signature, context.info().max_shared_memory)?, compiler().ok()?);
    let started = std::time::Instant::now();
    let attempt = || -> Result<Module, String> {
        let image = compile(compiler, &architecture(context), &text)?;
        let name = format!("algebra {signature}");
        Module::load(context, &name, &image).map_err(|error| error.to_string())
    };
    match attempt() {
        Ok(module) => {
            tracing::info!("kernels of {signature} ready in {:.1} s", started.elapsed().as_secs_f64());
            Some(module)
        }
        Err(error) => {
            tracing::warn!(
                "{signature} goes by tables, more slowly, for its kernels could not be made: {error}"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory of a block on compute capability 9.0.
    const LARGE: usize = 227 << 10;

    #[test]
    fn algebras_of_every_size_have_a_source_or_go_by_tables() {
        let source = |p, q, r| source(Signature::new(p, q, r), LARGE);
        assert!(source(0, 0, 1).unwrap().contains("GW_SGP_8(0, 0, 1, 4)"));
        assert!(source(2, 1, 1).unwrap().contains("GW_SGP_16(2, 1, 1)"));
        assert_eq!(source(6, 0, 0), None);
    }

    #[test]
    fn products_of_32_blades_go_row_by_row_on_every_device() {
        let families = |p, q, r, shared_memory| {
            let text = source(Signature::new(p, q, r), shared_memory).unwrap();
            ["GW_SGP_FOUR_LANES(", "GW_SGP_PERSISTENT_32("].map(|family| text.contains(family))
        };
        assert_eq!(families(3, 2, 0, LARGE), [true, false]);
        assert_eq!(families(3, 2, 0, 99 << 10), [true, true], "three rows of f32 do not fit");
        assert_eq!(
            families(4, 0, 1, LARGE),
            [false, true],
            "the pseudoscalar of a degenerate metric is not invertible"
        );
    }

    #[test]
    fn unlisted_algebras_compile_and_are_found_again() {
        let Ok(compiler) = compiler() else {
            eprintln!("nothing compiled: NVRTC was not found");
            return;
        };
        for (p, q, r) in [(0, 0, 1), (1, 1, 0), (1, 1, 1), (2, 1, 1)] {
            let text = source(Signature::new(p, q, r), LARGE).unwrap();
            let image = compile(compiler, "sm_90a", &text).unwrap();
            assert!(image.starts_with(b"\x7fELF"), "machine code");
            assert_eq!(compile(compiler, "sm_90a", &text).unwrap(), image);
        }
        let error = compile(compiler, "sm_90", "__global__ void broken() { nonsense }").unwrap_err();
        assert!(error.contains("nonsense"), "{error}");
    }
}
