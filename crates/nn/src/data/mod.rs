//! Data served in batches, and checked.

mod batch;
mod edges;
pub mod loader;
mod samples;
mod validate;

pub use crate::error::at_least_one;
pub(crate) use batch::own_copy;
pub use batch::{Batch, overwrite, scaled, to_device};
pub use edges::Edges;
pub use samples::{Samples, batches, for_each_batch, for_each_group, longest};
pub use validate::{LARGE_VALUE, check_finite};

use std::fmt;

/// The part of a data set that a sample belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Split {
    /// Samples the parameters are fitted to.
    Train,
    /// Samples evaluated during training.
    Valid,
    /// Samples evaluated once, for the reported results.
    Test,
}

impl Split {
    /// Every split.
    pub const ALL: [Self; 3] = [Self::Train, Self::Valid, Self::Test];

    /// The name used in file names and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
