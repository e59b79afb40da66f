//! Data sets as training and evaluation see them.

use super::Batch;
use crate::{
    Placement, Result,
    data::loader::{BatchOrder, Prefetch},
};
use std::sync::Arc;

/// Batches prepared ahead of their use.
const AHEAD: usize = 2;

/// A data set that batches are made of.
pub trait Samples: Send + Sync + 'static {
    /// What the model takes.
    type Batch: Batch + Send + 'static;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples at `indices`, in that order, each below [`len`](Self::len); repeats are allowed.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<Self::Batch>;
}

/// Batches prepared by a background thread, without end, from batch number `first` on.
///
/// # Errors
/// [`Error::Worker`](crate::Error::Worker) if there is no thread to be had; later errors arrive as items.
pub fn batches<D: Samples>(
    data: Arc<D>,
    order: &BatchOrder,
    first: u64,
    placement: &Placement,
) -> Result<Prefetch<D::Batch>> {
    let placement = placement.clone();
    let indices = order.batches_from(first);
    Prefetch::new(AHEAD, indices.map(move |indices| data.batch(&indices, &placement)))
}

/// Calls `work` with all samples in order, `batch_size` at a time. What only evaluates does so under
/// [`no_grad`](gradewise_autograd::no_grad).
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a batch size of zero; those of `work`.
pub fn for_each_batch<D: Samples>(
    data: &D,
    batch_size: usize,
    placement: &Placement,
    mut work: impl FnMut(&D::Batch) -> Result<()>,
) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    for indices in BatchOrder::sequential(data.len(), batch_size)?.one_epoch(0) {
        let batch = data.batch(&indices, placement)?;
        work(&batch)?;
    }
    Ok(())
}
