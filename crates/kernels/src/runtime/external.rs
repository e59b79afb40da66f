//! Memory that another library owns, and memory that it lends to the operators called on a thread.
//!
//! A library with arrays of its own (PyTorch, JAX, NumPy, candle, cudarc) shows them to operators as
//! [`Array::borrow`](crate::Array::borrow) says, without a copy. Where it also wants results in memory of its own, it calls operators inside
//! [`with_allocator`]: every array that they make, results and workspaces, is then in memory of its [`Allocator`], which
//! [`Array::owner`](crate::Array::owner) gives back. On a CUDA device,
//! [`CudaDevice::on_stream`](crate::CudaDevice::on_stream) queues the work in a stream of its own.

use std::{any::Any, cell::RefCell, error, fmt, sync::Arc};

/// What keeps borrowed memory alive. It is dropped with the last array over the memory, on the thread that drops that array.
pub type Owner = Box<dyn Any + Send + Sync>;

/// Alignment in bytes that operators expect of an [`Allocation`] on the host: no element is wider, and vectors are loaded and stored
/// unaligned, because borrowed values may begin anywhere.
pub const ALIGNMENT: usize = 16;

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In memory of the host.
    Host,
    /// On the CUDA device of this number.
    Cuda(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// Memory that an [`Allocator`] handed out.
pub struct Allocation {
    /// The address of its first byte, in the address space of its place.
    pub address: u64,
    /// What keeps it alive.
    pub owner: Owner,
}

/// Why an [`Allocator`] has no memory, in the words of its library.
pub type AllocationError = Box<dyn error::Error + Send + Sync>;

/// The memory of another library.
///
/// # Safety
/// An [`Allocation`] must have the requested number of bytes, readable and writable at the requested place, aligned to 16 bytes on the
/// host, as `malloc` aligns, and to 256 on a device. Nothing else may use it until its owner is dropped; on a device this includes work
/// that is not ordered with the stream in which the operators run.
pub unsafe trait Allocator: Send + Sync {
    /// `bytes` bytes of memory, more than none, at `place`. The contents are unspecified.
    ///
    /// # Errors
    /// The library's own error, such as out of memory.
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError>;
}

thread_local! {
    static ALLOCATOR: RefCell<Option<Arc<dyn Allocator>>> = const { RefCell::new(None) };
}

/// The allocator in force on this thread.
pub(crate) fn allocator() -> Option<Arc<dyn Allocator>> {
    ALLOCATOR.with_borrow(Clone::clone)
}

/// Runs `work`; the arrays that operators make on this thread meanwhile are in memory of `allocator`.
///
/// Memory that a device caches (tables of an algebra, kernels) never comes from it, nor does the memory of a captured graph.
pub fn with_allocator<R>(allocator: Arc<dyn Allocator>, work: impl FnOnce() -> R) -> R {
    scoped(Some(allocator), work)
}

/// Runs `work` with this library's own memory, whatever allocator is in force.
pub(crate) fn without_allocator<R>(work: impl FnOnce() -> R) -> R {
    scoped(None, work)
}

fn scoped<R>(allocator: Option<Arc<dyn Allocator>>, work: impl FnOnce() -> R) -> R {
    /// Restores the previous allocator, also when `work` panics.
    struct Restore(Option<Arc<dyn Allocator>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALLOCATOR.set(self.0.take());
        }
    }
    let _restore = Restore(ALLOCATOR.replace(allocator));
    work()
}
