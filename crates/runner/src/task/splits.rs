//! The numbers of samples of the splits.

use crate::config::{ConfigError, at_least_one};
use gradewise_nn::data::Split;
use serde::{Deserialize, Serialize};

/// `data.train`, `data.valid` and `data.test`: flattened into the `[data]` of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Splits {
    /// Number of training samples.
    pub train: usize,
    /// Number of validation samples.
    pub valid: usize,
    /// Number of test samples.
    pub test: usize,
}

impl Splits {
    /// The number of samples of a split.
    pub fn of(&self, split: Split) -> usize {
        match split {
            Split::Train => self.train,
            Split::Valid => self.valid,
            Split::Test => self.test,
        }
    }

    /// Refuses a split without samples.
    ///
    /// # Errors
    /// [`ConfigError::Value`]
    pub fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("data.train", self.train), ("data.valid", self.valid), ("data.test", self.test)])
    }
}
