//! The losses between two records, which a checkpoint keeps, so that a resumed run records the mean of an undisturbed one.

use gradewise_nn::checkpoint::CheckpointMetadata;
use serde::{Deserialize, Serialize};

/// The key in [`CheckpointMetadata::training`].
const KEY: &str = "run";

/// What a run has done since its last record.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// The sum of the finite losses, in the order of the steps.
    sum: f64,
    count: u64,
    /// Whether the step of the checkpoint was to be followed by an evaluation that is still to be made.
    #[serde(default)]
    pub unmeasured: bool,
}

impl Losses {
    /// What a checkpoint keeps; nothing for one that was written right after a record.
    pub fn of(metadata: &CheckpointMetadata) -> Self {
        metadata.training.get(KEY).and_then(|kept| Self::deserialize(kept).ok()).unwrap_or_default()
    }

    /// Adds this to a checkpoint.
    pub fn keep(&self, metadata: &mut CheckpointMetadata) {
        if *self != Self::default()
            && let (Some(training), Ok(kept)) =
                (metadata.training.as_object_mut(), serde_json::to_value(self))
        {
            training.insert(KEY.to_owned(), kept);
        }
    }

    pub fn see(&mut self, loss: f64) {
        if loss.is_finite() {
            self.sum += loss;
            self.count += 1;
        }
    }

    /// NaN if no loss was finite.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    pub fn clear(&mut self) {
        (self.sum, self.count) = (0.0, 0);
    }
}
