//! Training state in checkpoints.

use super::{Skips, Trainer};
use crate::checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, TensorFile};
use crate::optim::{GradientScaler, MovingAverage, Optimizer, ScalerState};
use crate::{Error, Module, Result};
use serde::{Deserialize, Serialize};

/// The scalars of a training run, as stored in a checkpoint.
#[derive(Serialize, Deserialize)]
struct State {
    optimizer: serde_json::Value,
    skips: Skips,
    #[serde(default)]
    scaler: Option<ScalerState>,
    /// Checkpoints of earlier versions lack it; it is then steps × the current accumulation.
    #[serde(default)]
    passes: Option<u64>,
}

impl<M: Module> Trainer<M> {
    /// A checkpoint with everything needed to resume training or to use the model. `name` and `model_config` identify the model.
    ///
    /// # Errors
    /// From the device.
    pub fn checkpoint(&self, name: &str, model_config: serde_json::Value) -> Result<Checkpoint> {
        let mut tensors = TensorFile::new();
        for (name, parameter) in &self.parameters {
            tensors.insert_array(name.clone(), &parameter.array())?;
        }
        if let Some(average) = &self.average {
            average.save(&mut tensors)?;
        }
        let scaler = self.scaler.as_ref().map(GradientScaler::state);
        let state = State {
            optimizer: self.optimizer.save(&mut tensors)?,
            skips: self.skips,
            scaler,
            passes: Some(self.passes),
        };
        let training = serde_json::to_value(state).map_err(|error| Error::Worker {
            operation: "checkpoint",
            reason: format!("the training state has no JSON form: {error}"),
        })?;
        let metadata = CheckpointMetadata {
            format_version: FORMAT_VERSION,
            model: name.to_owned(),
            model_config,
            step: self.step,
            training,
            members: Vec::new(),
        };
        Ok(Checkpoint { metadata, tensors })
    }

    /// Resumes from a checkpoint of the model that `name` and `model_config` identify, as for [`checkpoint`](Self::checkpoint): the steps
    /// that follow compute the same bits as if training had not been interrupted, provided they see the same batches. Model settings that
    /// only one side has are not compared, so that older checkpoints can be resumed. On an error, the trainer is unchanged.
    ///
    /// # Errors
    /// [`Error::Tensor`], [`Error::Argument`] or [`Error::Format`] if the checkpoint is of another model, configuration or optimiser, holds
    /// only weights, or holds a moving average that this trainer does not keep.
    pub fn resume(
        &mut self,
        checkpoint: &Checkpoint,
        name: &str,
        model_config: &serde_json::Value,
    ) -> Result<()> {
        require_same_model(&checkpoint.metadata, name, model_config)?;
        if self.average.is_none() && MovingAverage::is_in(&checkpoint.tensors) {
            return Err(Error::Argument {
                operation: "resume",
                argument: "ema",
                actual: "none".to_owned(),
                expected: "the decay of the moving average that the checkpoint holds; it would be lost"
                    .to_owned(),
            });
        }
        let state = State::deserialize(&checkpoint.metadata.training).map_err(|_| Error::Format {
            path: checkpoint.tensors.path().to_owned(),
            format: "checkpoint",
            reason: "it holds weights without the state of their training, so training cannot go on from it"
                .to_owned(),
        })?;
        let mut values = Vec::with_capacity(self.parameters.len());
        for (name, parameter) in &self.parameters {
            let like = parameter.array();
            let stored = &checkpoint.tensors;
            values.push(stored.array_of_shape(name, like.dims(), like.dtype(), &like.device())?);
        }
        let mut optimizer = Optimizer::new(self.config.method())?;
        optimizer.load(&state.optimizer, &checkpoint.tensors, &self.parameters)?;
        // The load is all or nothing, and the last step that can fail.
        if let Some(average) = &mut self.average {
            average.load(&checkpoint.tensors)?;
        }
        for ((_, parameter), value) in self.parameters.iter().zip(values) {
            parameter.set(value)?;
        }
        if let Some((scaler, state)) = self.scaler.as_mut().zip(state.scaler) {
            scaler.restore(state)?;
        }
        (self.optimizer, self.step, self.skips) = (optimizer, checkpoint.metadata.step, state.skips);
        self.passes =
            state.passes.unwrap_or_else(|| self.step.saturating_mul(self.config.accumulation as u64));
        Ok(())
    }
}

/// Refuses a checkpoint of another model than that of `name` and `config`.
fn require_same_model(metadata: &CheckpointMetadata, name: &str, config: &serde_json::Value) -> Result<()> {
    let refuse = |argument, actual: String, expected: String| {
        Err(Error::Argument { operation: "resume", argument, actual, expected })
    };
    if metadata.model != name {
        return refuse("model", format!("`{}` in the checkpoint", metadata.model), format!("`{name}`"));
    }
    let differing = match (metadata.model_config.as_object(), config.as_object()) {
        (Some(theirs), Some(ours)) => theirs.iter().find_map(|(key, value)| {
            ours.get(key).filter(|own| *own != value).map(|own| (key.as_str(), value, own))
        }),
        _ if metadata.model_config == *config => None,
        _ => Some(("", &metadata.model_config, config)),
    };
    match differing {
        None => Ok(()),
        Some((key, theirs, ours)) => {
            let key = if key.is_empty() { String::new() } else { format!("{key} = ") };
            refuse("model_config", format!("{key}{theirs} in the checkpoint"), format!("{key}{ours}"))
        }
    }
}
