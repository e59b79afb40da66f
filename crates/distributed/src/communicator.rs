//! Sums and copies of arrays over all processes.

use crate::Result;
use gradewise_kernels::Array;

/// Moves arrays between the processes of a run.
///
/// All processes call the same operations in the same order, with arrays of equal shapes and dtypes. The sum of an
/// [`all_reduce`](Self::all_reduce) is the same bits at every process.
pub trait Communicator: Send + Sync {
    /// What moves the arrays, with its version where it has one.
    fn name(&self) -> String;

    /// Which process this is.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn world(&self) -> usize;

    /// Begins to add `values` over all processes. Others may be begun before this one is waited for.
    ///
    /// # Errors
    /// An array that this cannot move; a process that is gone.
    fn all_reduce(&self, values: Array) -> Result<Pending>;

    /// Rank 0's `values` at every process.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn broadcast(&self, values: Array) -> Result<Array>;

    /// Whether what was waited for can be trusted: work on a device that broke off leaves no trace in its results.
    ///
    /// # Errors
    /// What broke off.
    fn check(&self) -> Result<()>;
}

/// A result that is on its way.
pub struct Pending(Box<dyn FnOnce() -> Result<Array> + Send>);

impl Pending {
    /// What `wait` returns, once it is asked for.
    pub fn new(wait: impl FnOnce() -> Result<Array> + Send + 'static) -> Self {
        Self(Box::new(wait))
    }

    /// The result. On a device, work that is queued later waits for it; the host does not.
    ///
    /// # Errors
    /// A process that is gone.
    pub fn wait(self) -> Result<Array> {
        (self.0)()
    }
}
