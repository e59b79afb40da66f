//! Detects damage to checkpoints: a SHA-256 of the metadata and the tensors, within the metadata.
//!
//! The digest covers the text of the metadata as it is in the file, because numbers that are parsed and printed again may differ in their
//! last digit.

use super::{CheckpointMetadata, DIGEST_KEY, TENSORS_KEY, TensorFile};
use serde_json::Value;

/// Hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// What to do about a damaged file.
const REMEDY: &str = "the file was damaged since; take a copy, or another checkpoint of the run (best.safetensors is one, too)";

/// The text of metadata, an object of JSON, with the digest as its first entry. A build without files has no digest.
pub(super) fn sealed(json: &str, tensors: &TensorFile) -> String {
    match (tensors.digest_with(json), json.strip_prefix('{')) {
        (Some(digest), Some(rest)) => format!("{{\"{DIGEST_KEY}\":\"{digest}\",{rest}"),
        _ => json.to_owned(),
    }
}

/// Splits what [`sealed`] wrote into digest and text.
fn unsealed(json: &str) -> Option<(&str, String)> {
    let rest = json.strip_prefix(&format!("{{\"{DIGEST_KEY}\":\""))?;
    let (digest, rest) = rest.split_at_checked(DIGITS)?;
    Some((digest, format!("{{{}", rest.strip_prefix("\",")?)))
}

/// The metadata in `json`, if it and the tensors are those that were written.
///
/// Checkpoints of earlier versions have a digest of the tensors alone, or none: of their metadata the counts are compared.
///
/// # Errors
/// What is wrong.
pub(super) fn verified(json: &str, tensors: &TensorFile) -> Result<CheckpointMetadata, String> {
    let malformed = |error: serde_json::Error| format!("its metadata is malformed: {error}");
    if let Some((digest, text)) = unsealed(json) {
        if tensors.digest_with(&text).is_some_and(|actual| actual != digest) {
            let tensors_alone = "its tensors or its metadata are not those that were written";
            return Err(format!("{tensors_alone}: {REMEDY}"));
        }
        return serde_json::from_str(&text).map_err(malformed);
    }
    let mut value: Value = serde_json::from_str(json).map_err(malformed)?;
    let digest = value.as_object_mut().and_then(|object| object.remove(TENSORS_KEY));
    // A damaged name of the digest is one of no known entry.
    let known = ["format_version", "model", "model_config", "step", "training", "members"];
    let stranger =
        value.as_object().and_then(|object| object.keys().find(|key| !known.contains(&key.as_str())));
    if let Some(stranger) = stranger {
        return Err(format!(
            "its metadata has an entry `{stranger}` that no version of this program wrote: {REMEDY}"
        ));
    }
    let metadata: CheckpointMetadata = serde_json::from_value(value).map_err(malformed)?;
    if digest.is_some_and(|digest| digest.as_str() != tensors.digest().as_deref()) {
        return Err(format!("its tensors are not those that were written: {REMEDY}"));
    }
    counted(&metadata)?;
    tracing::info!(
        "{}: written by an earlier version, whose digest does not cover the metadata",
        tensors.path().display()
    );
    Ok(metadata)
}

/// Refuses a number of steps that contradicts those of the optimiser: every step that was not skipped has updated the parameters.
fn counted(metadata: &CheckpointMetadata) -> Result<(), String> {
    let training = &metadata.training;
    let updates = training["optimizer"]["steps"].as_object().into_iter().flatten();
    let Some(updates) = updates.filter_map(|(_, count)| count.as_u64()).max() else { return Ok(()) };
    let Some(skipped) = training["skips"]["total"].as_u64() else { return Ok(()) };
    if updates.checked_add(skipped) == Some(metadata.step) {
        return Ok(());
    }
    Err(format!(
        "its metadata names step {}, and its optimiser has {updates} updates and {skipped} skipped steps: {REMEDY}",
        metadata.step
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Checkpoint, FORMAT_VERSION, METADATA_KEY};
    use super::*;
    use serde_json::json;

    /// A file as an earlier version wrote it.
    fn earlier(step: u64, updates: u64, skipped: u64) -> TensorFile {
        let mut file = TensorFile::new();
        file.insert(
            "w",
            super::super::StoredTensor::from_f64(&[2], &[1.0, 2.0], gradewise_core::DType::F32).unwrap(),
        );
        let metadata = json!({
            "format_version": FORMAT_VERSION, "model": "nbody", "model_config": {"lr": 0.1}, "step": step,
            "training": {"optimizer": {"steps": {"a": updates, "b": updates.min(1)}}, "skips": {"total": skipped, "consecutive": 0}},
            "sha256": file.digest(),
        });
        file.metadata.insert(METADATA_KEY.to_owned(), metadata.to_string());
        file
    }

    #[test]
    fn checkpoints_of_earlier_versions_load_unless_their_counts_contradict_each_other() {
        assert_eq!(Checkpoint::from_tensor_file(earlier(10, 8, 2)).unwrap().metadata.step, 10);
        assert_eq!(Checkpoint::from_tensor_file(earlier(0, 0, 0)).unwrap().metadata.step, 0);
        let message = Checkpoint::from_tensor_file(earlier(11, 10, 0)).unwrap_err().to_string();
        assert!(
            message.contains("step 11") && message.contains("10 updates") && message.contains("damaged"),
            "{message}"
        );
        let mut renamed = earlier(10, 10, 0);
        let text = renamed.metadata[METADATA_KEY].replace("sha256", "sha252");
        renamed.metadata.insert(METADATA_KEY.to_owned(), text);
        assert!(Checkpoint::from_tensor_file(renamed).unwrap_err().to_string().contains("`sha252`"));
    }

    #[test]
    fn numbers_keep_their_digits_under_the_seal() {
        let text = r#"{"format_version":1,"model":"m","model_config":{"x":0.30000000000000004},"step":3,"training":null}"#;
        let file = TensorFile::new();
        let sealed = sealed(text, &file);
        assert_eq!(unsealed(&sealed).unwrap().1, text);
        assert_eq!(verified(&sealed, &file).unwrap().step, 3);
        let message = verified(&sealed.replace("\"step\":3", "\"step\":7"), &file).unwrap_err();
        assert!(message.contains("damaged"), "{message}");
    }
}
