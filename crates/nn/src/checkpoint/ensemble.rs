//! Several trained models in one checkpoint.

use super::{Checkpoint, CheckpointMetadata, ENSEMBLE_VERSION, FORMAT_VERSION, TensorFile};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// One of the models of an ensemble.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The seed of its run.
    pub seed: u64,
    /// Optimiser steps it has taken.
    pub step: u64,
}

impl Checkpoint {
    /// The weights of several models of one kind and size, each with the seed of its run. The ensemble's prediction is the mean of their
    /// predictions. If a run kept a moving average of its weights, the average is stored in their place. The training state is left out.
    ///
    /// # Errors
    /// [`Error::Argument`] for no model at all, for models that differ in kind or size, and for ensembles among them.
    pub fn ensemble(models: &[(u64, Self)]) -> Result<Self> {
        let refuse = |actual: String, expected: &str| Error::Argument {
            operation: "ensemble",
            argument: "models",
            actual,
            expected: expected.to_owned(),
        };
        let Some((_, first)) = models.first() else {
            return Err(refuse("none".to_owned(), "at least one"));
        };
        let first = &first.metadata;
        let mut tensors = TensorFile::new();
        for (index, (_, model)) in models.iter().enumerate() {
            let metadata = &model.metadata;
            if !metadata.members.is_empty() {
                return Err(refuse("an ensemble".to_owned(), "single models, such as those of its runs"));
            }
            if (&metadata.model, &metadata.model_config) != (&first.model, &first.model_config) {
                return Err(refuse(
                    format!(
                        "`{}` {} beside `{}` {}",
                        metadata.model, metadata.model_config, first.model, first.model_config
                    ),
                    "models that differ in their weights alone",
                ));
            }
            let section = section(index);
            for (name, tensor) in model.tensors.weights() {
                tensors.insert(format!("{section}::{name}"), tensor.clone());
            }
        }
        let member = |(seed, model): &(u64, Self)| Member { seed: *seed, step: model.metadata.step };
        let members: Vec<Member> = models.iter().map(member).collect();
        let metadata = CheckpointMetadata {
            format_version: ENSEMBLE_VERSION,
            step: members.iter().map(|member| member.step).max().unwrap_or(0),
            training: serde_json::Value::Null,
            members,
            ..first.clone()
        };
        Ok(Self { metadata, tensors })
    }

    /// The models of an ensemble, each as a checkpoint of its own; a checkpoint of a single model is that model.
    ///
    /// # Errors
    /// [`Error::Format`] if the tensors of a model are missing.
    pub fn models(&self) -> Result<Vec<Self>> {
        if self.metadata.members.is_empty() {
            return Ok(vec![self.clone()]);
        }
        let model = |(index, member): (usize, &Member)| {
            let mut tensors = TensorFile::at(self.tensors.path());
            for (name, tensor) in self.tensors.section(&section(index)) {
                tensors.insert(name, tensor.clone());
            }
            if tensors.is_empty() {
                return Err(Error::Format {
                    path: self.tensors.path().to_owned(),
                    format: "checkpoint",
                    reason: format!("it lacks the weights of model {index}, of seed {}", member.seed),
                });
            }
            let metadata = CheckpointMetadata {
                format_version: FORMAT_VERSION,
                step: member.step,
                members: Vec::new(),
                ..self.metadata.clone()
            };
            Ok(Self { metadata, tensors })
        };
        self.metadata.members.iter().enumerate().map(model).collect()
    }
}

/// The section with the tensors of a model.
fn section(index: usize) -> String {
    format!("member.{index}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::StoredTensor;
    use gradewise_core::DType;
    use serde_json::json;
    use std::path::Path;

    fn single(value: f64, averaged: bool, width: usize) -> Checkpoint {
        let mut tensors = TensorFile::new();
        let mut insert = |name: &str, value: f64| {
            tensors.insert(name, StoredTensor::from_f64(&[1], &[value], DType::F64).unwrap());
        };
        insert("linear.weight", value);
        insert("optimizer.m::linear.weight", 7.0);
        if averaged {
            insert("ema::linear.weight", value + 0.5);
        }
        let metadata = CheckpointMetadata {
            format_version: FORMAT_VERSION,
            model: "area".to_owned(),
            model_config: json!({ "width": width }),
            step: 3 + value as u64,
            training: json!({ "skips": 0 }),
            members: Vec::new(),
        };
        Checkpoint { metadata, tensors }
    }

    #[test]
    fn an_ensemble_is_its_models_after_writing_and_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ensemble.safetensors");
        let both = [(4, single(1.0, false, 2)), (9, single(2.0, true, 2))];
        Checkpoint::ensemble(&both).unwrap().write(&path).unwrap();
        let read = Checkpoint::read(&path).unwrap();
        assert_eq!(read.metadata.members, [Member { seed: 4, step: 4 }, Member { seed: 9, step: 5 }]);
        assert_eq!((read.metadata.step, read.metadata.format_version), (5, 2));
        let models = read.models().unwrap();
        let weight =
            |model: &Checkpoint| model.tensors.get("linear.weight").unwrap().to_f64_vec().unwrap()[0];
        // The second model is stored with its moving average.
        assert_eq!(models.iter().map(weight).collect::<Vec<_>>(), [1.0, 2.5]);
        for (model, (_, from)) in models.iter().zip(&both) {
            assert_eq!(model.tensors.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["linear.weight"]);
            assert_eq!(
                (&model.metadata.model_config, model.metadata.step),
                (&from.metadata.model_config, from.metadata.step)
            );
            assert_eq!(model.tensors.path(), path);
            assert_eq!(model.models().unwrap(), std::slice::from_ref(model), "a single model is itself");
        }
    }

    #[test]
    fn a_single_model_is_written_as_it_was_before_there_were_ensembles() {
        let bytes = single(1.0, false, 2).to_bytes(Path::new("x")).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("members"));
    }

    #[test]
    fn models_of_different_kinds_are_refused() {
        let refused = |models: &[(u64, Checkpoint)]| Checkpoint::ensemble(models).unwrap_err().to_string();
        assert!(refused(&[]).contains("at least one"));
        let message = refused(&[(0, single(1.0, false, 2)), (1, single(1.0, false, 3))]);
        assert!(message.contains(r#"{"width":3}"#) && message.contains(r#"{"width":2}"#), "{message}");
        let nested = Checkpoint::ensemble(&[(0, single(1.0, false, 2))]).unwrap();
        assert!(refused(&[(0, nested)]).contains("single models"));
    }

    #[test]
    fn an_ensemble_without_the_weights_of_a_model_is_refused() {
        let mut ensemble = Checkpoint::ensemble(&[(5, single(1.0, false, 2))]).unwrap();
        ensemble.metadata.members.push(Member { seed: 6, step: 1 });
        assert!(ensemble.models().unwrap_err().to_string().contains("of seed 6"));
    }
}
