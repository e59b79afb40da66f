//! Host memory for arrays: 64-byte aligned blocks from a caching pool.
//!
//! A training step makes and drops hundreds of buffers of the same few sizes. Returning them to the system each time
//! costs a page fault per 4 KiB when they come back; the pool keeps them instead, sorted into size classes (four per
//! power of two, so that at most a quarter of a block is slack). [`stats`] tells what is in use, [`trim`] gives the
//! unused blocks back, and [`set_limit`] keeps a program within less than the machine has.
//!
//! What the memory of any device is used for: [`Monitor`] measures a piece of work, [`LeakWatcher`] notices growth from iteration to
//! iteration, [`census`] lists what is alive.
//!
//! A block that is handed out again holds whatever its last owner left. In builds with debug assertions, or with
//! `GRADEWISE_POISON=1` in the environment or in [debug mode](crate::runtime::debug), it is filled with NaN instead, so that an element which an operator forgot
//! to write shows.

mod bytes;
pub mod census;
mod holders;
mod leaks;
mod monitor;

pub use bytes::Bytes;
pub use holders::{Holder, Within, within};
pub use leaks::{Leak, LeakWatcher, Suspect};
pub use monitor::{Delta, Monitor};

use crate::{
    Error, Result,
    runtime::{
        debug,
        external::{self, Owner, Place},
    },
};
use census::Ticket;
pub(crate) use holders::{Held, Holders, Largest, account, within_operator};
use std::{
    alloc::{self, Layout},
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Alignment of every block in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// The byte that fills poisoned blocks: 0xFFFF… is a NaN in every floating-point format.
pub(crate) const POISON: u8 = 0xFF;

const CLASSES_PER_OCTAVE: usize = 4;
const CLASSES: usize = (usize::BITS as usize) * CLASSES_PER_OCTAVE;

/// Counters of a device's memory, or of the host pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// In blocks that live arrays hold; on a GPU, also what captured graphs own for theirs.
    pub allocated: usize,
    /// Obtained from the system: `allocated` plus what is kept for reuse.
    pub reserved: usize,
    /// The largest `allocated` since the start or the last reset.
    pub peak: usize,
}

/// The counters now.
pub fn stats() -> Stats {
    pool().stats
}

/// Resets [`Stats::peak`] to the current allocation.
pub fn reset_peak() {
    let mut pool = pool();
    pool.stats.peak = pool.stats.allocated;
}

pub(crate) fn raise_peak(bytes: usize) {
    let mut pool = pool();
    pool.stats.peak = pool.stats.peak.max(bytes);
}

/// The holders of allocated memory, largest first.
pub fn holders() -> Vec<Holder> {
    holders::HOST.largest()
}

/// Refuses, as if there were no more, memory for arrays on the host beyond so many bytes in all; 0 for no limit.
pub fn set_limit(bytes: usize) {
    pool().limit = bytes;
}

/// Returns the blocks that no array holds to the system; gives their size in bytes.
pub fn trim() -> usize {
    pool().trim()
}

/// The error of `operation`, which asked for so many bytes.
fn out_of_memory(operation: &'static str, requested: usize) -> Error {
    let Stats { allocated, reserved, .. } = stats();
    let holders = holders().into_iter().take(5).collect();
    Error::OutOfMemory { operation, requested, allocated, reserved, holders }
}

/// An empty vector with room for `count` elements: what leaves the pool for the caller.
pub(crate) fn vector<T>(operation: &'static str, count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    values.try_reserve_exact(count).map_err(|_| out_of_memory(holders::account(operation), bytes))?;
    Ok(values)
}

/// A free block. Owned by the pool's list it is in.
struct Free(NonNull<u8>);

// SAFETY: a free block is plain memory that nothing else points to.
unsafe impl Send for Free {}

struct Pool {
    free: [Vec<Free>; CLASSES],
    stats: Stats,
    /// The limit of `stats.allocated`; 0 for no limit.
    limit: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: [const { Vec::new() }; CLASSES],
    stats: Stats { allocated: 0, reserved: 0, peak: 0 },
    limit: 0,
});

fn pool() -> MutexGuard<'static, Pool> {
    // The pool's methods cannot panic half-way; a poisoned lock still guards a consistent pool.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The smallest class whose blocks hold `bytes`: the octave, and how many quarters of it are needed on top.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGNMENT);
    let octave = bytes.ilog2() as usize;
    let quarter = 1usize << (octave - 2);
    let quarters = (bytes - (1 << octave)).div_ceil(quarter);
    octave * CLASSES_PER_OCTAVE + quarters
}

/// The size of the block that a request of `bytes` bytes gets, if it fits an allocation.
pub(crate) fn rounded(bytes: usize) -> Option<usize> {
    class_size(class_of(bytes))
}

/// Size of the blocks of a class, if it fits an allocation.
fn class_size(class: usize) -> Option<usize> {
    let (octave, quarters) = (class / CLASSES_PER_OCTAVE, class % CLASSES_PER_OCTAVE);
    let size = (1usize.checked_shl(octave as u32)?).checked_add(quarters << (octave - 2))?;
    (size <= isize::MAX as usize - ALIGNMENT).then_some(size)
}

fn layout(size: usize) -> Layout {
    // `class_size` bounds the size; the alignment is a power of two.
    Layout::from_size_align(size, ALIGNMENT).unwrap_or_else(|_| unreachable!("class sizes fit a layout"))
}

struct BeyondLimit;

impl Pool {
    /// A block of the class if one is free; nothing at all beyond the limit.
    fn take(&mut self, class: usize, size: usize) -> Result<Option<Free>, BeyondLimit> {
        if self.limit > 0 && self.stats.allocated.saturating_add(size) > self.limit {
            return Err(BeyondLimit);
        }
        let block = self.free[class].pop();
        if block.is_none() {
            self.stats.reserved += size;
        }
        self.stats.allocated += size;
        self.stats.peak = self.stats.peak.max(self.stats.allocated);
        Ok(block)
    }

    /// Counts memory that a vector obtained; `false` beyond the limit.
    fn adopt(&mut self, size: usize) -> bool {
        if self.limit > 0 && self.stats.allocated.saturating_add(size) > self.limit {
            return false;
        }
        self.stats.reserved += size;
        self.stats.allocated += size;
        self.stats.peak = self.stats.peak.max(self.stats.allocated);
        true
    }

    fn trim(&mut self) -> usize {
        let mut released = 0;
        for (class, list) in self.free.iter_mut().enumerate() {
            if let Some(size) = class_size_if_any(class, list) {
                for block in list.drain(..) {
                    // SAFETY: the block came from `alloc_zeroed` with this layout and nothing points to it.
                    unsafe { alloc::dealloc(block.0.as_ptr(), layout(size)) };
                    released += size;
                }
                list.shrink_to_fit();
            }
        }
        self.stats.reserved -= released;
        released
    }
}

fn class_size_if_any(class: usize, list: &[Free]) -> Option<usize> {
    if list.is_empty() { None } else { class_size(class) }
}

/// Bytes on the host: of the pool, aligned to [`ALIGNMENT`], to which they return when dropped, of a vector that was handed over, or of
/// another library.
///
/// Every byte is initialised, with unspecified contents.
pub(crate) struct Block {
    pointer: NonNull<u8>,
    bytes: usize,
    origin: Origin,
    size: usize,
    _held: Held,
    ticket: Ticket,
}

/// Whose a block's memory is, once it is dropped.
enum Origin {
    /// The pool's, of this class.
    Pool(usize),
    /// The system's, as a vector obtained it.
    Vector(Layout),
    /// Another library's, handed out for a new array.
    Allocated(Owner),
    /// Another library's, which holds values of its own: read only.
    Borrowed(Owner),
}

// SAFETY: a block owns its memory; shared access is read-only and exclusive access takes `&mut self`.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub fn new(bytes: usize, asking: &'static str) -> Result<Self> {
        let operation = holders::account(asking);
        if bytes > 0
            && let Some(allocator) = external::allocator()
        {
            return Self::allocated(allocator.as_ref(), bytes, operation);
        }
        let out_of_memory = || out_of_memory(operation, bytes);
        let class = class_of(bytes);
        let size = class_size(class).ok_or_else(out_of_memory)?;
        // The lock is let go of before the error looks at the counters.
        let recycled = pool().take(class, size);
        let recycled = recycled.map_err(|BeyondLimit| out_of_memory())?;
        let pointer = match recycled {
            Some(Free(pointer)) => pointer,
            None => match allocate(size) {
                Some(pointer) => pointer,
                None => {
                    let mut pool = pool();
                    pool.stats.reserved -= size;
                    pool.stats.allocated -= size;
                    drop(pool);
                    return Err(out_of_memory());
                }
            },
        };
        let held = holders::HOST.add(operation, size);
        let ticket = Ticket::new(operation, size, || "cpu".to_owned());
        let mut block = Self { pointer, bytes, origin: Origin::Pool(class), size, _held: held, ticket };
        if debug::poisons() {
            block.bytes_mut().fill(POISON);
        }
        Ok(block)
    }

    /// Memory of another library for a new array.
    fn allocated(allocator: &dyn external::Allocator, bytes: usize, operation: &'static str) -> Result<Self> {
        let place = Place::Host;
        let refused = |message: String| Error::Allocator { operation, place, requested: bytes, message };
        let allocation = allocator.allocate(place, bytes).map_err(|error| refused(error.to_string()))?;
        let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(allocation.address as usize))
            .filter(|pointer| pointer.as_ptr().addr() % external::ALIGNMENT == 0)
            .ok_or_else(|| refused(format!("its memory begins at {:#x}", allocation.address)))?;
        let mut block = Self::of(pointer, bytes, Origin::Allocated(allocation.owner), operation);
        if debug::poisons() {
            block.bytes_mut().fill(POISON);
        }
        Ok(block)
    }

    /// Values of another library, to be read only.
    ///
    /// # Safety
    /// `bytes` initialised bytes at `address` must stay readable, and nobody may write to them, until the owner is dropped.
    pub unsafe fn borrow(address: NonNull<u8>, bytes: usize, owner: Owner) -> Self {
        Self::of(address, bytes, Origin::Borrowed(owner), "borrow")
    }

    /// Memory that does not count as this library's.
    fn of(pointer: NonNull<u8>, bytes: usize, origin: Origin, operation: &'static str) -> Self {
        let held = holders::HOST.add(operation, 0);
        let ticket = Ticket::new(operation, 0, || "cpu".to_owned());
        Self { pointer, bytes, origin, size: 0, _held: held, ticket }
    }

    /// Who owns the memory, where that is another library.
    pub fn owner(&self) -> Option<&Owner> {
        match &self.origin {
            Origin::Allocated(owner) | Origin::Borrowed(owner) => Some(owner),
            Origin::Pool(_) | Origin::Vector(_) => None,
        }
    }

    /// Whether the values are another library's.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.origin, Origin::Borrowed(_))
    }

    /// The elements of a vector, without a copy.
    pub fn from_vec<T: bytemuck::Pod>(values: Vec<T>, asking: &'static str) -> Result<Self> {
        // Neither is memory of the system's; a copy of nothing costs nothing.
        if values.capacity() == 0 || size_of::<T>() == 0 {
            return Self::new(0, asking);
        }
        let operation = holders::account(asking);
        let size = values.capacity() * size_of::<T>();
        if !pool().adopt(size) {
            return Err(out_of_memory(operation, size));
        }
        let mut values = ManuallyDrop::new(values);
        let layout = Layout::array::<T>(values.capacity());
        let layout = layout.unwrap_or_else(|_| unreachable!("the vector has such a layout"));
        let bytes = values.len() * size_of::<T>();
        // The memory beyond the last element is never shown.
        let pointer = NonNull::from(values.as_mut_slice()).cast::<u8>();
        let ticket = Ticket::new(operation, size, || "cpu".to_owned());
        let held = holders::HOST.add(operation, size);
        Ok(Self { pointer, bytes, origin: Origin::Vector(layout), size, _held: held, ticket })
    }

    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `pointer` has at least `bytes` bytes, initialised since `alloc_zeroed`, as elements of a vector, or by another library,
        // which keeps them while the owner lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive; arrays over borrowed values copy them before they write.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

/// Memory for an operator's intermediates, with unspecified contents. It comes from the pool: large vectors cost a page fault per
/// 4 KiB each time.
pub(crate) struct Scratch<T> {
    block: Block,
    elements: PhantomData<T>,
}

impl<T: bytemuck::Pod> Scratch<T> {
    pub fn new(count: usize, operation: &'static str) -> Result<Self> {
        let block = Block::new(count.saturating_mul(size_of::<T>()), operation)?;
        Ok(Self { block, elements: PhantomData })
    }
}

impl<T: bytemuck::Pod> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.block.bytes())
    }
}

impl<T: bytemuck::Pod> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.block.bytes_mut())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.origin {
            // The owner goes with the block, and lets go of the memory.
            Origin::Allocated(_) | Origin::Borrowed(_) => {}
            Origin::Pool(class) => {
                let mut pool = pool();
                pool.stats.allocated -= self.size;
                pool.free[class].push(Free(self.pointer));
            }
            Origin::Vector(layout) => {
                let mut pool = pool();
                pool.stats.allocated -= self.size;
                pool.stats.reserved -= self.size;
                drop(pool);
                // SAFETY: a vector obtained it from the global allocator with this layout, and gave it up.
                unsafe { alloc::dealloc(self.pointer.as_ptr(), layout) };
            }
        }
    }
}

/// Memory from the system; before giving up, with everything returned that the pool keeps.
fn allocate(size: usize) -> Option<NonNull<u8>> {
    // SAFETY: class sizes are never zero. Zeroed, because reading memory nobody wrote is undefined behaviour.
    let request = || NonNull::new(unsafe { alloc::alloc_zeroed(layout(size)) });
    request().or_else(|| {
        trim();
        request()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_holds_its_request_with_at_most_a_quarter_of_slack(bytes in 0usize..1 << 40) {
            let size = class_size(class_of(bytes)).unwrap();
            prop_assert!(size >= bytes);
            prop_assert!(size <= ALIGNMENT || size * 4 <= bytes * 5, "{bytes} in {size}");
            prop_assert_eq!(class_size(class_of(size)), Some(size), "class sizes are their own class");
        }
    }

    #[test]
    fn blocks_are_aligned_and_poisoned() {
        for bytes in [0, 1, 63, 64, 65, 1 << 20] {
            let mut block = Block::new(bytes, "test").unwrap();
            assert_eq!(block.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(block.bytes().len(), bytes);
            block.bytes_mut().fill(7);
            drop(block);
            let again = Block::new(bytes, "test").unwrap();
            if debug::poisons() {
                assert!(again.bytes().iter().all(|&byte| byte == POISON));
            }
        }
    }

    #[test]
    fn a_vector_becomes_a_block_and_its_memory_goes_back() {
        for count in [0usize, 1, 1000] {
            let mut values = Vec::with_capacity(count + 24);
            values.extend((0..count).map(|value| value as f64));
            let address = values.as_ptr().addr();
            let mut block = Block::from_vec(values, "test").unwrap();
            assert_eq!((block.bytes().as_ptr().addr(), block.bytes().len()), (address, 8 * count));
            block.bytes_mut().fill(1);
        }
        assert!(Block::from_vec(Vec::<f32>::new(), "test").unwrap().bytes().is_empty());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for bytes in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 2] {
            let before = stats().allocated;
            assert!(
                matches!(Block::new(bytes, "test"), Err(Error::OutOfMemory { requested, .. }) if requested == bytes)
            );
            assert!(stats().allocated < before.saturating_add(bytes / 2));
        }
    }
}
