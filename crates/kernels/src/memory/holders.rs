//! Who holds memory: counts by operation, which are always kept.

use super::Bytes;
use std::{
    cell::Cell,
    collections::HashMap,
    fmt,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// An operation and the memory its results take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The operation that made the arrays.
    pub operation: &'static str,
    /// Their number.
    pub arrays: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrays = if self.arrays == 1 { "array" } else { "arrays" };
        write!(f, "{} ({} in {} {arrays})", self.operation, Bytes(self.bytes), self.arrays)
    }
}

/// "; largest: mul (64 bytes in 1 arrays), …" for the end of a message; nothing if nothing is held.
pub(crate) struct Largest<'a>(pub &'a [Holder]);

impl fmt::Display for Largest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, holder) in self.0.iter().enumerate() {
            write!(f, "{}{holder}", if position == 0 { "; largest: " } else { ", " })?;
        }
        Ok(())
    }
}

/// Arrays and bytes by operation.
#[derive(Default)]
pub(crate) struct Holders(Mutex<HashMap<&'static str, (usize, usize)>>);

/// Those of the host.
pub(super) static HOST: LazyLock<Holders> = LazyLock::new(Holders::default);

impl Holders {
    fn table(&self) -> MutexGuard<'_, HashMap<&'static str, (usize, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, operation: &'static str, bytes: usize) {
        let mut table = self.table();
        let entry = table.entry(operation).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
    }

    pub fn remove(&self, operation: &'static str, bytes: usize) {
        if let Some(entry) = self.table().get_mut(operation) {
            *entry = (entry.0.saturating_sub(1), entry.1.saturating_sub(bytes));
        }
    }

    /// Largest first.
    pub fn largest(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self
            .table()
            .iter()
            .filter(|(_, (arrays, _))| *arrays > 0)
            .map(|(&operation, &(arrays, bytes))| Holder { operation, arrays, bytes })
            .collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.operation.cmp(b.operation)));
        holders
    }
}

thread_local! {
    static OPERATION: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// While this lives, memory of the host that this thread asks for is on account of an operation.
#[derive(Debug)]
pub struct Within(Option<&'static str>);

/// Lets memory of the host be on account of `operation` until the guard is dropped. Kernels of a device name themselves.
pub fn within(operation: &'static str) -> Within {
    Within(OPERATION.replace(Some(operation)))
}

/// [`within`] for an operator: whoever called it may have named itself already, and keeps the account.
pub(crate) fn within_operator(operation: &'static str) -> Within {
    Within(OPERATION.replace(Some(account(operation))))
}

impl Drop for Within {
    fn drop(&mut self) {
        OPERATION.set(self.0);
    }
}

/// On whose account memory is asked for: the operation that runs, or else `asking`.
pub(super) fn account(asking: &'static str) -> &'static str {
    OPERATION.get().unwrap_or(asking)
}
