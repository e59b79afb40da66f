//! The kernels embedded at build time.

/// A fat binary with the kernels of one operation.
pub(crate) struct Image {
    /// The operation.
    pub name: &'static str,
    /// The fat binary.
    pub bytes: &'static [u8],
    /// The kernels in it.
    pub kernels: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Refuses a device that none of the embedded images runs on.
pub(crate) fn require_target(info: &gradewise_ffi::DeviceInfo) -> crate::Result<()> {
    if IMAGES.is_empty() || serves(info.compute_capability, TARGETS, PTX) {
        return Ok(());
    }
    Err(crate::Error::UnsupportedDevice {
        device: info.ordinal,
        name: info.name.clone(),
        capability: info.compute_capability,
        targets: TARGETS.to_vec(),
        ptx: PTX,
    })
}

/// Whether a device runs machine code of one of `targets` (same major version, no newer minor one) or, compiled by the
/// driver, PTX of `ptx` or later capability.
fn serves((major, minor): (u32, u32), targets: &[&str], ptx: &str) -> bool {
    let parse = |target: &str| target.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().ok();
    let exact = |target: &str| target.ends_with(|c: char| c.is_ascii_alphabetic());
    let device = major * 10 + minor;
    let runs = |target: &&str| {
        parse(target).is_some_and(|version| {
            if exact(target) { version == device } else { version / 10 == major && version <= device }
        })
    };
    targets.iter().any(runs) || parse(ptx).is_some_and(|version| version <= device)
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn machine_code_runs_on_its_major_version_and_ptx_on_anything_newer() {
        assert!(serves((9, 0), &["90a"], ""));
        assert!(!serves((9, 1), &["90a"], ""), "code for one architecture only");
        assert!(serves((8, 9), &["80"], ""));
        assert!(!serves((8, 0), &["86"], ""));
        assert!(!serves((9, 0), &["80"], ""));
        assert!(serves((12, 1), &["80"], "75"));
        assert!(!serves((7, 0), &["75", "80"], "75"));
    }
}
