//! Freed device memory that is kept for the next arrays.

use gradewise_ffi::DeviceMemory;
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Small blocks of the device's pool that no array has, kept for the next arrays of their size: obtaining and returning a block by the
/// driver costs the host two to three microseconds, as much as a launch. All work of the device is in one stream, so what the next array's
/// work does to a block comes after what the last one's did.
#[derive(Default)]
pub(crate) struct Recycled {
    free: Mutex<HashMap<usize, Vec<DeviceMemory>>>,
    bytes: AtomicUsize,
}

/// The largest block that is kept.
pub(super) const LARGEST_KEPT: usize = 1 << 20;

/// The most bytes that are kept in all.
const MOST_KEPT: usize = 64 << 20;

impl Recycled {
    fn free(&self) -> MutexGuard<'_, HashMap<usize, Vec<DeviceMemory>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept block of `bytes` bytes.
    pub fn take(&self, bytes: usize) -> Option<DeviceMemory> {
        let block = self.free().get_mut(&bytes).and_then(Vec::pop)?;
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(block)
    }

    /// Keeps a block.
    pub fn add(&self, block: DeviceMemory) {
        let bytes = block.bytes();
        // Sizes that are no longer asked for must not keep out those that are.
        if self.bytes.load(Ordering::Relaxed) + bytes > MOST_KEPT {
            self.clear();
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.free().entry(bytes).or_default().push(block);
    }

    /// Returns everything to the pool.
    pub fn clear(&self) {
        let blocks = std::mem::take(&mut *self.free());
        self.bytes.store(0, Ordering::Relaxed);
        drop(blocks);
    }
}
