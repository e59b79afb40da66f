//! Files of frames: extended XYZ and `.npz`.

mod archive;
mod archived;
mod comment;
mod extended_xyz;
#[cfg(test)]
mod tests;

use super::{EnergyUnit, Frame, Units};
use gradewise_nn::{Error, Result, checkpoint::read_file};
use std::path::Path;

pub use extended_xyz::write as write_extended_xyz;

/// Reads the frames of a file, in eV and Å: extended XYZ (`.xyz`, `.extxyz`), or `.npz` of the rMD17, MD17 and MD22 kinds. Where the unit
/// of energies is [`EnergyUnit::Format`], it is eV of the first and kcal/mol of the others.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the line or frame for a file that is truncated or foreign, for numbers that are not finite and
/// unknown species.
pub fn read(path: &Path, units: &Units) -> Result<Vec<Frame>> {
    format_of(path)?;
    from_bytes(&read_file("read frames", path)?, path, units)
}

/// The unit of energies that files of this name usually have.
pub(super) fn usual(path: &Path) -> EnergyUnit {
    match format_of(path) {
        Ok(ARCHIVE) => EnergyUnit::KilocaloriePerMole,
        _ => EnergyUnit::ElectronVolt,
    }
}

/// As [`read`], from the contents of the file.
pub(super) fn from_bytes(bytes: &[u8], path: &Path, units: &Units) -> Result<Vec<Frame>> {
    let format = format_of(path)?;
    let units = Units { energy: units.energy.or(usual(path)), ..*units };
    let frames = match format {
        ARCHIVE => archived::parse(bytes, path, &units),
        _ => std::str::from_utf8(bytes)
            .map_err(|error| format!("it is no text: byte {} is not UTF-8", error.valid_up_to()))
            .and_then(|text| extended_xyz::parse(text, &units)),
    };
    frames.map_err(|reason| Error::Format { path: path.to_owned(), format, reason })
}

const ARCHIVE: &str = ".npz";

/// The format by the ending of the name.
fn format_of(path: &Path) -> Result<&'static str> {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    match ending.as_deref() {
        Some("xyz" | "extxyz") => Ok("extended XYZ"),
        Some("npz") => Ok(ARCHIVE),
        _ => Err(Error::DataSet {
            path: path.to_owned(),
            reason: "its name must end in .xyz or .extxyz (extended XYZ), or .npz (rMD17, MD17, MD22)"
                .to_owned(),
        }),
    }
}
