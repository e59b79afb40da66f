//! How much memory of a device is in use, and by whom.

use crate::runtime::memory::{Held, Holders};
use gradewise_ffi::DeviceMemory;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters of a device.
#[derive(Default)]
pub(crate) struct Accounts {
    pub(super) allocated: AtomicUsize,
    pub(super) peak: AtomicUsize,
    /// The limit of `allocated`; 0 for no limit.
    pub(super) limit: AtomicUsize,
    /// The part of `allocated` that captured graphs own.
    pub(super) graphs: AtomicUsize,
    pub(super) holders: Holders,
}

/// The holder of memory that a captured graph owns while no array uses it.
const GRAPHS: &str = "captured graphs";

impl Accounts {
    pub(super) fn add(&self, bytes: usize) {
        let now = self.allocated.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Puts a block that no array has any more on the account of the captured graphs.
    pub(super) fn owned_by_graph(&self, memory: DeviceMemory) -> Kept {
        Kept { _held: self.holders.add(GRAPHS, memory.bytes()), memory }
    }

    /// Of memory that a graph kept for what was let go during its capture.
    pub(super) fn release(&self, retired: &Kept) {
        self.remove(retired.memory.bytes());
    }

    pub(super) fn is_beyond_limit(&self, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit > 0 && self.allocated.load(Ordering::Relaxed).saturating_add(bytes) > limit
    }
}

/// Memory of a captured graph that no array is in.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) memory: DeviceMemory,
    _held: Held,
}
