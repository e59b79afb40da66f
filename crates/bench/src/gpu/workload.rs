//! Cases prepared for repeated runs.

use crate::{Pass, Result};

/// A pass that can be run repeatedly.
pub struct Prepared<'a> {
    /// Queues one run.
    pub run: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Bytes of memory owned by a captured graph; `None` if unknown.
    pub graph_bytes: Option<usize>,
}

/// A case with its inputs on a device.
pub trait Workload {
    /// Prepares a pass. One-time work (a capture, the first step of a training run) happens here.
    ///
    /// # Errors
    /// From the device; [`Pass::Graph`] without a CUDA device.
    fn prepare(&self, pass: Pass) -> Result<Prepared<'_>>;
}
