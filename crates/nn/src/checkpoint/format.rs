//! Code behind the feature `files`: the safetensors format, and the hash that detects damage.

use super::stored::StoredTensor;
use crate::{Error, Result};
use std::{collections::BTreeMap, path::Path};

/// Names and metadata of a file, as text.
type Metadata = BTreeMap<String, String>;

const FORMAT: &str = "safetensors";

/// The metadata and the tensors in the contents of a file; `path` is for messages.
#[cfg(feature = "files")]
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<(Metadata, BTreeMap<String, StoredTensor>)> {
    use safetensors::SafeTensors;
    if let Some(foreign) = foreign(bytes) {
        return Err(Error::Format { path: path.to_owned(), format: FORMAT, reason: foreign.to_owned() });
    }
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| refused(path, &error))?;
    let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| refused(path, &error))?
        .iter()
        .map(|(name, view)| {
            let (dtype, shape, bytes) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), StoredTensor { dtype, shape, bytes })
        })
        .collect();
    Ok((metadata, tensors))
}

/// The contents of a file; `path` is for messages.
#[cfg(feature = "files")]
pub(super) fn serialize(
    tensors: &BTreeMap<String, StoredTensor>,
    metadata: &Metadata,
    path: &Path,
) -> Result<Vec<u8>> {
    use safetensors::tensor::TensorView;
    let views = tensors
        .iter()
        .map(|(name, t)| {
            let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
            Ok((name, view.map_err(|error| refused(path, &error))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let metadata = (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect());
    safetensors::serialize(views, metadata).map_err(|error| refused(path, &error))
}

/// The SHA-256 of the parts, one after the other, in hexadecimal digits; `None` in a build without files.
#[cfg(feature = "files")]
pub fn sha256<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Option<String> {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    Some(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Names the format of a file that is none of safetensors, and how its weights get into one.
#[cfg(feature = "files")]
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    const PYTORCH: &str = "it is a file of torch.save, a PyTorch checkpoint; pickles can run code as they are read, so none is read here. In \
                           Python: safetensors.torch.save_file(torch.load(\"FILE\", weights_only=True), \"FILE.safetensors\"), of the \
                           state_dict inside, if the file holds more than that";
    const ZIP: &str = "it is a zip archive: torch.save writes such files, PyTorch checkpoints, and numpy.savez. In Python: \
                       safetensors.torch.save_file(torch.load(\"FILE\", weights_only=True), \"FILE.safetensors\"), of the state_dict \
                       inside, if the file holds more than that; or safetensors.numpy.save_file(dict(numpy.load(\"FILE\")), …)";
    // A header of safetensors has fewer than 10⁸ bytes, so byte 4 of its length is 0, and `{` follows the length.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    let holds =
        |text: &[u8]| bytes[..bytes.len().min(1 << 12)].windows(text.len()).any(|window| window == text);
    match bytes {
        // The pickle is the first entry of torch.save's archive.
        [b'P', b'K', 3, 4, ..] if holds(b"/data.pkl") || holds(b"/.data/") || holds(b"/version") => {
            Some(PYTORCH)
        }
        [b'P', b'K', 3, 4, ..] => Some(ZIP),
        // Protocol 2 to 5 of pickle: what torch.save wrote before version 1.6, and pickle.dump writes.
        [0x80, 2..=5, ..] => Some(PYTORCH),
        [0x89, b'H', b'D', b'F', ..] => {
            Some("it is an HDF5 file; write its arrays by safetensors.numpy.save_file in Python")
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(
            "it is a .npy file of one array; safetensors.numpy.save_file in Python writes several with names",
        ),
        _ => None,
    }
}

#[cfg(feature = "files")]
fn refused(path: &Path, error: &safetensors::SafeTensorError) -> Error {
    use safetensors::SafeTensorError;
    let reason = match error {
        SafeTensorError::HeaderTooSmall => {
            "it is shorter than any safetensors file; it is empty or truncated".into()
        }
        SafeTensorError::InvalidHeaderLength => {
            "its header is longer than the file; it is truncated, or not safetensors at all".into()
        }
        SafeTensorError::HeaderTooLarge => {
            "its first bytes are no safetensors header; it is a foreign file".into()
        }
        SafeTensorError::InvalidHeader(_) | SafeTensorError::InvalidHeaderDeserialization(_) => {
            format!("its header is not the JSON of a safetensors file ({error})")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "its data do not end where the header says; it is truncated, or has foreign data at its end"
                .into()
        }
        _ => error.to_string(),
    };
    Error::Format { path: path.to_owned(), format: FORMAT, reason }
}

#[cfg(not(feature = "files"))]
pub(super) fn parse(_: &[u8], path: &Path) -> Result<(Metadata, BTreeMap<String, StoredTensor>)> {
    Err(none(path))
}

#[cfg(not(feature = "files"))]
pub(super) fn serialize(_: &BTreeMap<String, StoredTensor>, _: &Metadata, path: &Path) -> Result<Vec<u8>> {
    Err(none(path))
}

/// `None`: digests come with the feature `files`.
#[cfg(not(feature = "files"))]
pub fn sha256<T: AsRef<[u8]>>(_: impl IntoIterator<Item = T>) -> Option<String> {
    None
}

#[cfg(not(feature = "files"))]
fn none(path: &Path) -> Error {
    let reason = "this build reads and writes no such files; build gradewise-nn with its feature `files`";
    Error::Format { path: path.to_owned(), format: FORMAT, reason: reason.to_owned() }
}

#[cfg(all(test, feature = "files"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_programs_are_named_with_the_way_here() {
        let zip = [&b"PK\x03\x04\x00\x00\x08\x08"[..], &[0; 22], b"archive/data.pkl"].concat();
        let cases: [(&[u8], &[&str]); 5] = [
            (&zip, &["torch.save", "PyTorch", "save_file"]),
            (b"PK\x03\x04\x00\x00\x08\x08arr_0.npy", &["zip", "torch.save", "numpy"]),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", &["torch.save", "pickle"]),
            (b"\x89HDF\r\n\x1a\n....", &["HDF5"]),
            (b"\x93NUMPY\x01\x00v\x00{'descr'", &[".npy"]),
        ];
        for (bytes, parts) in cases {
            let message = parse(bytes, Path::new("model.pt")).unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "`{part}` is not in: {message}");
            }
        }
    }
}
