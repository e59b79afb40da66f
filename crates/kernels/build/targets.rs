//! The architectures to compile for.

use super::{Result, toolkit::Toolkit};

/// Every architecture with a binary of its own; devices between them run the next one below of the same generation.
pub const DEFAULT: [&str; 8] = ["70", "75", "80", "86", "89", "90a", "100", "120"];

/// The architecture of the portable code that the driver compiles for devices without a binary.
pub const BASELINE: &str = "75";

/// The targets that `request` names (`90a`, `80,90a`; `all` or nothing: every default one that the toolkit supports).
pub fn choose(request: Option<&str>, toolkit: &Toolkit) -> Result<Vec<String>> {
    let request = request.map(str::trim).filter(|text| !text.is_empty() && *text != "all");
    let Some(request) = request else {
        let all: Vec<String> = DEFAULT
            .iter()
            .filter(|target| toolkit.supports(target))
            .map(|&target| target.to_owned())
            .collect();
        return if all.is_empty() { Err(unsupported("any of our targets", toolkit)) } else { Ok(all) };
    };
    let mut chosen: Vec<String> = Vec::new();
    for item in request.split([',', ';', ' ']).map(str::trim).filter(|item| !item.is_empty()) {
        let target = item.strip_prefix("sm_").unwrap_or(item).replace('.', "");
        let digits = target.trim_end_matches(['a', 'f']);
        if digits.len() < 2 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!(
                "GRADEWISE_CUDA_ARCHS: `{item}` is not an architecture; write a list like 80,90a or 8.9, or all"
            ));
        }
        if !toolkit.supports(&target) {
            return Err(unsupported(&format!("sm_{target} of GRADEWISE_CUDA_ARCHS"), toolkit));
        }
        if !chosen.contains(&target) {
            chosen.push(target);
        }
    }
    Ok(chosen)
}

fn unsupported(what: &str, toolkit: &Toolkit) -> String {
    let Toolkit { nvcc, version, architectures } = toolkit;
    format!(
        "{} {version} does not compile for {what}, only for {}; choose among these with GRADEWISE_CUDA_ARCHS, or another \
         compiler with GRADEWISE_NVCC (scripts/get-nvcc installs one)",
        nvcc.display(),
        architectures.join(", ")
    )
}
