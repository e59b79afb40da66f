//! Files of named tensors: any safetensors file, and checkpoints of training runs.

mod atomic;
mod digest;
mod ensemble;
mod folder;
mod format;
mod stored;
mod tensors;

pub use atomic::{read_file, replace_file, require_regular};
pub use ensemble::Member;
pub use folder::{FOLDER_VERSION, FolderConfig, ModelFolder, SHARD_BYTES};
pub use format::sha256;
pub use stored::StoredTensor;
pub use tensors::TensorFile;

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout of a single model.
pub const FORMAT_VERSION: u32 = 1;

/// Version of the layout of several models, [`Checkpoint::ensemble`]. Readers refuse newer versions.
pub const ENSEMBLE_VERSION: u32 = 2;

/// Key of the safetensors metadata under which [`CheckpointMetadata`] is stored as JSON. One key, because the
/// safetensors header has no defined order and equal checkpoints should be equal bytes.
const METADATA_KEY: &str = "gradewise";

/// Key of the digest in the JSON under [`METADATA_KEY`]: the first key, so that the text it covers can be told from it.
const DIGEST_KEY: &str = "digest";

/// Key of the digest of earlier versions, which covers the tensors alone. The first versions wrote none.
const TENSORS_KEY: &str = "sha256";

/// The metadata of a checkpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckpointMetadata {
    /// Layout of the file: [`FORMAT_VERSION`], or [`ENSEMBLE_VERSION`] where there are [`members`](Self::members).
    pub format_version: u32,
    /// Name of the model family, such as `nbody`.
    pub model: String,
    /// The configuration from which the model can be rebuilt.
    pub model_config: serde_json::Value,
    /// Optimiser steps taken.
    pub step: u64,
    /// Scalars of the optimiser, the schedule and the trainer; null for weights alone.
    pub training: serde_json::Value,
    /// The models of an ensemble, in the order of their tensors; none where there is a single model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// The weights of a model, with the training state if the run is to be resumed.
///
/// On disk it is a safetensors file: the model's tensors under their own names, other sections as
/// `section::name`, and [`CheckpointMetadata`] as JSON in the metadata. Several models, an [ensemble](Self::ensemble), lie in sections
/// `member.0`, `member.1` and so on.
///
/// ```
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::Device;
/// use gradewise_nn::{Module, checkpoint::Checkpoint, layers::MvLinear, train::{Trainer, TrainerConfig}};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let layer = MvLinear::new(2, 3, Signature::CL3).init(&Device::Cpu, &mut rng)?;
/// let trainer = Trainer::new(layer, TrainerConfig::default())?;
/// let folder = std::env::temp_dir().join(format!("gradewise-checkpoint-{}", std::process::id()));
/// std::fs::create_dir_all(&folder).unwrap();
/// let path = folder.join("layer.safetensors");
/// trainer.checkpoint("layer", serde_json::json!({ "inputs": 2 }))?.write(&path)?;
///
/// let other = MvLinear::new(2, 3, Signature::CL3).init(&Device::Cpu, &mut rng)?;
/// let checkpoint = Checkpoint::read(&path)?;
/// other.load(&|name| checkpoint.tensors.find_array(name, DType::F32, &Device::Cpu))?;
/// assert_eq!(other.weight().array().to_vec::<f32>()?, trainer.model().weight().array().to_vec::<f32>()?);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// The metadata.
    pub metadata: CheckpointMetadata,
    /// Its tensors.
    pub tensors: TensorFile,
}

impl Checkpoint {
    /// Reads a checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] if the file is truncated, foreign, or of a newer version.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_tensor_file(TensorFile::read(path)?)
    }

    /// Whether a tensor file carries the metadata of a checkpoint.
    pub fn is_checkpoint(tensors: &TensorFile) -> bool {
        tensors.metadata.contains_key(METADATA_KEY)
    }

    /// Interprets a tensor file as a checkpoint.
    ///
    /// # Errors
    /// [`Error::Format`] if it was written by another program, or by a newer version of this one.
    pub fn from_tensor_file(mut tensors: TensorFile) -> Result<Self> {
        let refused = |tensors: &TensorFile, reason: String| Error::Format {
            path: tensors.path().to_owned(),
            format: "checkpoint",
            reason,
        };
        let Some(json) = tensors.metadata.remove(METADATA_KEY) else {
            let reason = "it is a safetensors file without checkpoint metadata; `gradewise inspect` shows what it holds, and \
                          `gradewise import` makes a checkpoint of the state_dict of a published model";
            return Err(refused(&tensors, reason.to_owned()));
        };
        let version = serde_json::from_str::<serde_json::Value>(&json)
            .ok()
            .and_then(|value| value.get("format_version")?.as_u64())
            .ok_or_else(|| refused(&tensors, "its metadata has no format version".to_owned()))?;
        if version > u64::from(ENSEMBLE_VERSION) {
            let reason = format!(
                "it has format version {version}, this program reads up to {ENSEMBLE_VERSION}; use a newer gradewise"
            );
            return Err(refused(&tensors, reason));
        }
        let metadata = digest::verified(&json, &tensors).map_err(|reason| refused(&tensors, reason))?;
        Ok(Self { metadata, tensors })
    }

    /// Writes the checkpoint atomically: at any moment, the file at `path` is either the previous one or this one (see
    /// [`replace_file`]).
    ///
    /// # Errors
    /// [`Error::Write`]; the previous file is untouched.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.to_bytes(path.as_ref())?;
        replace_file(path, |file| file.write_all(&bytes))
    }

    fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let json = serde_json::to_value(&self.metadata).map_err(|error| Error::Format {
            path: path.to_owned(),
            format: "checkpoint",
            reason: format!("its metadata cannot be written as JSON: {error}"),
        })?;
        let json = digest::sealed(&json.to_string(), &self.tensors);
        let mut tensors = self.tensors.clone();
        tensors.metadata.insert(METADATA_KEY.to_owned(), json);
        tensors.to_bytes(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn checkpoint(step: u64) -> Checkpoint {
        let mut tensors = TensorFile::new();
        let values: Vec<f64> = (0..12).map(|i| (i as f64 + step as f64).sin()).collect();
        tensors.insert(
            "linear.weight",
            StoredTensor::from_f64(&[3, 4], &values, gradewise_core::DType::F64).unwrap(),
        );
        tensors.insert(
            "adam.m::linear.weight",
            StoredTensor::from_f64(&[0], &[], gradewise_core::DType::F32).unwrap(),
        );
        Checkpoint {
            metadata: CheckpointMetadata {
                format_version: FORMAT_VERSION,
                model: "nbody".to_owned(),
                model_config: serde_json::json!({"hidden": 28}),
                step,
                training: serde_json::Value::Null,
                members: Vec::new(),
            },
            tensors,
        }
    }

    fn encoded() -> Vec<u8> {
        checkpoint(3).to_bytes(Path::new("x")).unwrap()
    }

    fn parse(bytes: &[u8]) -> Result<Checkpoint> {
        TensorFile::from_bytes(bytes, "some.safetensors").and_then(Checkpoint::from_tensor_file)
    }

    #[test]
    fn what_is_written_is_read_back_and_equal_checkpoints_are_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        checkpoint(3).write(&path).unwrap();
        let back = Checkpoint::read(&path).unwrap();
        assert_eq!(back.metadata, checkpoint(3).metadata);
        let values = |c: &Checkpoint| c.tensors.get("linear.weight").unwrap().to_f64_vec().unwrap();
        assert_eq!(values(&back), values(&checkpoint(3)));
        assert_eq!(std::fs::read(&path).unwrap(), encoded());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn a_full_disk_loses_neither_the_previous_checkpoint_nor_leaves_a_part_of_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        checkpoint(1).write(&path).unwrap();
        let bytes = encoded();
        let error = replace_file(&path, |file| {
            file.write_all(&bytes[..bytes.len() / 2])?;
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.to_string().contains("checkpoint.safetensors"), "{error}");
        assert_eq!(Checkpoint::read(&path).unwrap().metadata.step, 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // A run killed while writing leaves its temporary file; the next write is not disturbed by it.
        std::fs::File::create(folder.path().join("checkpoint.safetensors.partial"))
            .unwrap()
            .write_all(b"x")
            .unwrap();
        checkpoint(2).write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap().metadata.step, 2);
    }

    #[test]
    fn foreign_newer_and_missing_files_say_so() {
        let plain = TensorFile::new().to_bytes(Path::new("x")).unwrap();
        assert!(parse(&plain).unwrap_err().to_string().contains("without checkpoint metadata"));
        let mut newer = checkpoint(0);
        newer.metadata.format_version = ENSEMBLE_VERSION + 1;
        let error = parse(&newer.to_bytes(Path::new("x")).unwrap()).unwrap_err().to_string();
        assert!(error.contains("newer gradewise"), "{error}");
        assert!(matches!(Checkpoint::read("/nonexistent/c.safetensors"), Err(Error::Io { .. })));
    }

    #[test]
    #[cfg(unix)]
    fn files_without_an_end_are_refused_before_they_are_read() {
        for path in ["/dev/zero", "/dev/null"] {
            for error in [TensorFile::read(path).unwrap_err(), Checkpoint::read(path).unwrap_err()] {
                assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("device"), "{error}");
            }
        }
        assert!(matches!(TensorFile::read(std::env::temp_dir()), Err(Error::Io { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_truncated_file_is_always_refused(keep in 0usize..10_000) {
            let bytes = encoded();
            let keep = keep % bytes.len();
            let refused = matches!(parse(&bytes[..keep]), Err(Error::Format { .. }));
            prop_assert!(refused);
        }

        #[test]
        fn a_damaged_tensor_is_noticed(position in 0usize..10_000, bit in 0u8..8) {
            let mut bytes = encoded();
            // The tensors are at the end.
            let position = bytes.len() - 1 - position % 96;
            bytes[position] ^= 1 << bit;
            let refused = matches!(parse(&bytes), Err(Error::Format { reason, .. }) if reason.contains("damaged"));
            prop_assert!(refused);
        }

        #[test]
        fn a_damaged_bit_is_noticed_wherever_it_is(position in 0usize..10_000, bit in 0u8..8) {
            let mut bytes = encoded();
            let position = position % bytes.len();
            bytes[position] ^= 1 << bit;
            prop_assert!(parse(&bytes).is_err(), "bit {bit} of byte {position} of {}", bytes.len());
        }

        #[test]
        fn a_damaged_file_never_panics(position in 0usize..10_000, bit in 0u8..8) {
            let mut bytes = encoded();
            let position = position % bytes.len();
            bytes[position] ^= 1 << bit;
            if let Ok(tensors) = TensorFile::from_bytes(&bytes, "x") {
                for (_, tensor) in tensors.iter() {
                    let _ = tensor.to_f64_vec();
                }
                let _ = Checkpoint::from_tensor_file(tensors);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), header in 0u64..200) {
            let _ = TensorFile::from_bytes(&bytes, "x");
            let _ = TensorFile::from_bytes(&[&header.to_le_bytes(), bytes.as_slice()].concat(), "x");
        }
    }
}
