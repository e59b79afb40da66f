//! Errors about files that cannot be read.

use gradewise_nn::Error;
use hdf5_reader::error::Error as ReaderError;
use std::path::Path;

const REWRITE: &str = "rewrite it with `ptrepack --complib=zlib --complevel=5 IN.h5:/ OUT.h5:/` (PyTables) or \
                       `h5repack -f SHUF -f GZIP=5 IN.h5 OUT.h5`";

/// An error about the file at `path`.
pub(super) fn format(path: &Path, reason: String) -> Error {
    Error::Format { path: path.to_owned(), format: "HDF5", reason }
}

/// An error of the reader, with the file and, where there is one, the remedy.
pub(super) fn refused(path: &Path, error: ReaderError) -> Error {
    match error {
        ReaderError::Io(source) => Error::io("read HDF5 file", path, source),
        ReaderError::Context { path: object, source } => match refused(path, *source) {
            Error::Format { reason, .. } => format(path, format!("`{object}`: {reason}")),
            other => other,
        },
        ReaderError::InvalidMagic => format(path, "it has no HDF5 signature".to_owned()),
        ReaderError::UnsupportedFilter(filter) => {
            format(path, format!("it is compressed with {}, which is not read; {REWRITE}", known(&filter)))
        }
        ReaderError::UnexpectedEof { .. } => format(path, format!("it is truncated or damaged ({error})")),
        other => format(path, other.to_string()),
    }
}

/// The name of a filter given as "filter id NUMBER", from the registry of the HDF Group.
fn known(filter: &str) -> String {
    let name = match filter.trim_start_matches("filter id ") {
        "305" => "LZO",
        "307" => "bzip2",
        "32000" => "LZF",
        "32004" => "LZ4",
        "32008" => "bitshuffle",
        "32013" => "ZFP",
        "32015" => "Zstandard",
        "32026" => "blosc2",
        _ => return filter.to_owned(),
    };
    format!("{name} ({filter})")
}
