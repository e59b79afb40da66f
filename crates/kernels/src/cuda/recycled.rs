//! Freed device memory that is kept for the next arrays.

use super::CudaDevice;
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
const LARGEST_KEPT: usize = 1 << 20;

/// The most bytes that are kept in all.
const MOST_KEPT: usize = 64 << 20;

impl Recycled {
    fn free(&self) -> MutexGuard<'_, HashMap<usize, Vec<DeviceMemory>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of `bytes` bytes.
    pub fn obtain(&self, device: &CudaDevice, bytes: usize) -> Result<DeviceMemory, gradewise_ffi::Error> {
        if Self::serves(device, bytes)
            && let Some(block) = self.free().get_mut(&bytes).and_then(Vec::pop)
        {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Ok(block);
        }
        DeviceMemory::new(device.stream(), bytes)
    }

    /// Keeps a block, or returns it to the pool.
    pub fn give(&self, device: &CudaDevice, block: DeviceMemory) {
        let bytes = block.bytes();
        if !Self::serves(device, bytes) || block.stream().raw() != device.own_stream().raw() {
            return;
        }
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

    /// Whether a block is small, and the work of this thread in the device's own stream, to which the kept blocks belong.
    fn serves(device: &CudaDevice, bytes: usize) -> bool {
        bytes <= LARGEST_KEPT
            && device.options().recycle
            && device.stream().raw() == device.own_stream().raw()
    }
}
