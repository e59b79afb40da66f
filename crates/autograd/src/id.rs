//! The identity of tensors, and the two passes of an operation.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Identifies a tensor within the process.
///
/// Ids ascend in the order of creation, so a tensor's id is larger than those of everything it was computed from:
/// descending ids are a topological order of any graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorId(u64);

impl TensorId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Which pass an operation ran in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Pass {
    /// The operation itself, also where a backward rule is written in operations.
    Forward,
    /// Its backward rule, as a whole.
    Backward,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}
