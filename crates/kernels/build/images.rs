//! The generated Rust source that embeds kernels and headers.

use super::{Result, compile::Kernels, sources::Sources, targets::BASELINE};
use std::{fs, path::Path};

/// Copies the fat binaries to `out` and gives the text of `images.rs`.
pub fn generate(
    kernels: Option<&Kernels>,
    sources: &Sources,
    out: &Path,
    assertions: bool,
) -> Result<String> {
    let mut images = String::new();
    for binary in kernels.iter().flat_map(|kernels| &kernels.binaries) {
        let file = out.join(format!("{}.fatbin", binary.name));
        fs::write(&file, &binary.bytes)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        images += &format!(
            "    Image {{ name: {:?}, bytes: include_bytes!({file:?}), kernels: &{:?} }},\n",
            binary.name,
            binary.kernels()
        );
    }
    let headers: String = sources
        .headers()
        .map(|header| format!("    ({header:?}, include_str!({:?})),\n", sources.root.join(header)))
        .collect();
    let targets: &[String] = kernels.map_or(&[], |kernels| &kernels.targets);
    let baseline = if kernels.is_some() { BASELINE } else { "" };
    let toolkit = kernels.map_or("", |kernels| &kernels.version);
    Ok(format!(
        "/// The kernels' machine code, by source file; empty without the feature `cuda`.\n\
         pub(crate) static IMAGES: &[Image] = &[\n{images}];\n\n\
         /// Architectures with machine code of their own, such as `90a`.\n\
         pub(crate) static TARGETS: &[&str] = &{targets:?};\n\n\
         /// Architecture of the portable code that a driver compiles for all others; empty without kernels.\n\
         pub(crate) static PTX: &str = {baseline:?};\n\n\
         /// Version of the compiler; empty without kernels.\n\
         pub(crate) static TOOLKIT: &str = {toolkit:?};\n\n\
         /// Whether they have their assertions.\n\
         pub(crate) static ASSERTIONS: bool = {assertions};\n\n\
         /// A table of the registers, shared memory, stack and spills of each kernel on each architecture.\n\
         pub(crate) static REPORT: &str = include_str!({:?});\n\n\
         /// The headers that kernels are made from, by path relative to `csrc`.\n\
         #[allow(dead_code)]\n\
         pub(crate) static SOURCES: &[(&str, &str)] = &[\n{headers}];\n",
        out.join("kernels.txt")
    ))
}
