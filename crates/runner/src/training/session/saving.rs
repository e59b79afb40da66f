//! Checkpoints of a run, and which of them replace the last one.

use super::Session;
use crate::{error::Result, output, task::Task};
use gradewise_ffi::nvtx;
use gradewise_nn::checkpoint::Checkpoint;
use serde_json::Value;

/// Skipped steps in a row by which a loss scale of f16 usually finds its size: they say nothing about the weights.
const SCALING: u64 = 8;

impl<T: Task> Session<'_, T> {
    /// The weights and the state of training.
    pub(super) fn weights(&self) -> Result<Checkpoint> {
        let sizes = serde_json::to_value(&self.config.model).unwrap_or(Value::Null);
        let mut checkpoint = self.trainer.checkpoint(T::NAME, sizes)?;
        self.losses.keep(&mut checkpoint.metadata);
        Ok(checkpoint)
    }

    /// Whether the last steps were skipped, so that the weights may be past saving.
    fn is_in_doubt(&self) -> bool {
        let skipped = self.trainer.skipped_in_a_row();
        skipped > if self.trainer.loss_scale().is_some() { SCALING } else { 0 }
    }

    /// Writes the checkpoint that is owed. During a streak of skipped steps the last one stays, and this one is written after it.
    pub(super) fn checkpoint_between_steps(&mut self) -> Result<()> {
        if self.trainer.skipped_in_a_row() > 0 && self.trainer.steps() < self.config.train.trainer.steps {
            return Ok(());
        }
        self.owed = false;
        self.checkpoint_at_end()
    }

    /// Writes the checkpoint of a run that ends or is interrupted. If that is during a streak of skipped steps, an earlier checkpoint stays,
    /// and the state goes into [`failed`](crate::run::RunFolder::failed).
    pub(super) fn checkpoint_at_end(&self) -> Result<()> {
        let kept = Checkpoint::read(self.folder.checkpoint()).ok().filter(|_| self.is_in_doubt());
        let Some(kept) = kept else { return self.checkpoint() };
        self.weights()?.write(self.folder.failed())?;
        output::note(&format!(
            "the last {} steps were skipped, so {} stays that of step {}; the state after step {} is in {}",
            self.trainer.skipped_in_a_row(),
            self.folder.checkpoint().display(),
            kept.metadata.step,
            self.trainer.steps(),
            self.folder.failed().display()
        ));
        Ok(())
    }

    /// Writes the checkpoint of a run whose last steps were skipped although its weights predict finite numbers.
    pub(super) fn checkpoint_if_newer(&self) -> Result<()> {
        if self.is_in_doubt() { self.checkpoint() } else { Ok(()) }
    }

    /// Writes the checkpoint, whatever the last steps were.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let _range = nvtx::range("checkpoint");
        Ok(self.weights()?.write(self.folder.checkpoint())?)
    }
}
