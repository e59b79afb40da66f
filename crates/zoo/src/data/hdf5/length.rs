//! Whether a file is as long as it says.

use super::refusal::format;
use gradewise_nn::{Error, Result};
use std::{fs::File, io::Read, path::Path};

const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Refuses a file that ends before the end that its superblock has (HDF5 File Format Specification 3.0, section II.A), as the HDF5 library does. What
/// was cut off may be missed by no reader of single datasets.
///
/// # Errors
/// [`Error::Format`] for a truncated file; [`Error::Io`] if it cannot be read.
pub fn require_whole(path: &Path) -> Result<()> {
    let failed = |source| Error::io("read HDF5 file", path, source);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut head = Vec::new();
    file.by_ref().take(64).read_to_end(&mut head).map_err(failed)?;
    match end(&head) {
        Some(end) if length < end => {
            Err(format(path, format!("it is truncated: {length} of its {end} bytes are there")))
        }
        _ => Ok(()),
    }
}

/// The end of the file by its superblock; `None` if that is elsewhere or of another kind, which the reader decides about.
fn end(head: &[u8]) -> Option<u64> {
    let [version, ..] = *head.strip_prefix(&SIGNATURE)? else { return None };
    let (sizes, end) = match version {
        0 => (13, 40),
        1 => (13, 44),
        2 | 3 => (9, 28),
        _ => return None,
    };
    if *head.get(sizes)? != 8 {
        return None;
    }
    let bytes = head.get(end..end + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
