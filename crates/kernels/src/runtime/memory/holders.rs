//! Who holds memory: counts by operation, which are always kept.

use super::Bytes;
use crate::runtime::growing::Growing;
use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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

/// Arrays and bytes of one operation.
#[derive(Debug, Default)]
struct Count {
    arrays: AtomicUsize,
    bytes: AtomicUsize,
}

/// Arrays and bytes by operation.
#[derive(Default)]
pub(crate) struct Holders(Growing<&'static str, Arc<Count>>);

/// A block of memory on the account of an operation, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    count: Arc<Count>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.arrays.fetch_sub(1, Ordering::Relaxed);
        self.count.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Those of the host.
pub(super) static HOST: Holders = Holders(Growing::new());

impl Holders {
    /// Puts a block of so many bytes on the account of `operation`.
    pub fn add(&self, operation: &'static str, bytes: usize) -> Held {
        let count = self.0.get_or_make(operation, Arc::default);
        count.arrays.fetch_add(1, Ordering::Relaxed);
        count.bytes.fetch_add(bytes, Ordering::Relaxed);
        Held { count, bytes }
    }

    /// Largest first.
    pub fn largest(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self
            .0
            .read()
            .iter()
            .map(|(&operation, count)| Holder {
                operation,
                arrays: count.arrays.load(Ordering::Relaxed),
                bytes: count.bytes.load(Ordering::Relaxed),
            })
            .filter(|holder| holder.arrays > 0)
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
pub(crate) fn account(asking: &'static str) -> &'static str {
    OPERATION.get().unwrap_or(asking)
}
