//! The memory and the kernels that captured graphs own.

use super::accounts::{Accounts, Kept};
use crate::runtime::memory;
use gradewise_ffi::{DeviceMemory, Function, Stream};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What a captured graph owns: blocks of memory that only its own work reuses, and the kernels that it launches.
pub(crate) struct Arena {
    accounts: Arc<Accounts>,
    /// The stream under capture.
    stream: Stream,
    free: Mutex<HashMap<usize, Vec<Kept>>>,
    /// Blocks that are not free yet, while some are held.
    held: Mutex<Option<Vec<Kept>>>,
    bytes: AtomicUsize,
    /// A graph does not keep modules loaded: without these, one that its owner lets go would be unloaded under it.
    kernels: Mutex<Vec<Function>>,
}

impl Arena {
    pub fn new(accounts: &Arc<Accounts>, stream: &Stream) -> Self {
        let (accounts, stream) = (Arc::clone(accounts), stream.clone());
        Self {
            accounts,
            stream,
            free: Mutex::default(),
            held: Mutex::default(),
            bytes: AtomicUsize::new(0),
            kernels: Mutex::default(),
        }
    }

    /// Keeps the module of a kernel of the graph loaded as long as the graph.
    pub(super) fn keep(&self, kernel: &Function) {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).push(kernel.clone());
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn free(&self) -> MutexGuard<'_, HashMap<usize, Vec<Kept>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that an earlier array of the graph is done with.
    pub(super) fn reuse(&self, bytes: usize) -> Option<DeviceMemory> {
        self.free().get_mut(&Self::size(bytes)).and_then(Vec::pop).map(|kept| kept.memory)
    }

    pub(super) fn obtain(&self, bytes: usize) -> Result<DeviceMemory, gradewise_ffi::Error> {
        let size = Self::size(bytes);
        let block = DeviceMemory::immediate(&self.stream, size)?;
        self.bytes.fetch_add(size, Ordering::Relaxed);
        self.accounts.graphs.fetch_add(size, Ordering::Relaxed);
        self.accounts.add(size);
        Ok(block)
    }

    pub(super) fn give(&self, block: DeviceMemory) {
        let kept = self.accounts.owned_by_graph(block);
        if let Some(held) = self.held().as_mut() {
            return held.push(kept);
        }
        self.put_back(kept);
    }

    fn put_back(&self, kept: Kept) {
        self.free().entry(kept.memory.bytes()).or_default().push(kept);
    }

    fn held(&self) -> MutexGuard<'_, Option<Vec<Kept>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, blocks that arrays are done with stay as they are; or they are free again.
    pub(super) fn hold(&self, holds: bool) {
        let mut held = self.held();
        if holds {
            held.get_or_insert_default();
        } else {
            held.take().unwrap_or_default().into_iter().for_each(|kept| self.put_back(kept));
        }
    }

    fn size(bytes: usize) -> usize {
        memory::rounded(bytes).unwrap_or(bytes)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.accounts.graphs.fetch_sub(bytes, Ordering::Relaxed);
        self.accounts.remove(bytes);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.bytes())
    }
}
