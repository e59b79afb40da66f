//! One capture of a device at a time, and the work of other threads outside of it.

use super::{accounts::Kept, arena::Arena};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Keeps other threads' work out of a capture.
#[derive(Default)]
pub(crate) struct Gate {
    pub(super) lock: RwLock<()>,
    /// The thread that captures; 0 for none.
    pub(super) owner: AtomicU64,
    pub(super) session: Mutex<Option<Session>>,
}

/// What a capture in progress owns.
pub(super) struct Session {
    pub arena: Arc<Arena>,
    /// Memory from before the capture that was let go during it. The graph may read it, so it stays until the graph goes.
    pub retired: Vec<Kept>,
}

pub(super) fn this_thread() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    thread_local! {
        static NUMBER: u64 = {
            let mut hasher = DefaultHasher::new();
            thread::current().id().hash(&mut hasher);
            hasher.finish().max(1)
        };
    }
    NUMBER.with(|number| *number)
}

impl Gate {
    /// Waits until no other thread captures; while the guard lives none begins to.
    pub fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.is_mine() { None } else { Some(self.lock.read().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Whether this thread captures.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    /// What the graph of the capture in progress owns, if the capture is this thread's.
    pub(super) fn arena(&self) -> Option<Arc<Arena>> {
        self.session()?.as_ref().map(|session| Arc::clone(&session.arena))
    }

    /// The capture in progress, if it is this thread's.
    pub(super) fn session(&self) -> Option<MutexGuard<'_, Option<Session>>> {
        self.is_mine().then(|| self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
