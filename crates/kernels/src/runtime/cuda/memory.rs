//! Device memory: blocks, who holds them, and how much there is.

use super::{CudaDevice, Key, arena::Arena, device::default_pool};
use crate::{
    Error, Holder, Result,
    runtime::{
        debug,
        external::{self, Allocator, Owner, Place},
        memory::{self, Held, Stats, census::Ticket},
        transfers::{self, Direction},
    },
};
use gradewise_ffi::{DeviceMemory, Event, PeerAccess, sys};
use std::{
    ffi::c_void,
    mem::ManuallyDrop,
    sync::{Arc, atomic::Ordering},
};

/// Memory of one device in bytes, as this process uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// In arrays that are alive, and in what captured graphs own for theirs.
    pub allocated: usize,
    /// The most that was allocated since the start or the last reset.
    pub peak: usize,
    /// Obtained from the system: allocated, kept for reuse, or owned by captured graphs.
    pub reserved: usize,
    /// Free on the device, for any process.
    pub free: usize,
    /// All of the device's memory.
    pub total: usize,
    /// The holders of allocated memory, largest first.
    pub holders: Vec<Holder>,
}

/// The storage of an array on a CUDA device. Memory of its own returns to the device, in stream order, when it is dropped.
pub(crate) struct Buffer {
    device: CudaDevice,
    memory: ManuallyDrop<DeviceMemory>,
    origin: Origin,
    bytes: usize,
    _held: Held,
    ticket: Ticket,
}

/// Whose memory a buffer is in.
enum Origin {
    /// The device's pool, by way of the blocks that are kept for reuse.
    Pool,
    /// A captured graph's.
    Arena(Arc<Arena>),
    /// Another library's, handed out for a new array.
    Allocated(Owner),
    /// Another library's, which holds values of its own: read only.
    Borrowed(Owner),
}

impl Buffer {
    /// `bytes` bytes with unspecified contents: NaN where the host's memory would be poisoned too.
    pub fn new(device: &CudaDevice, bytes: usize, operation: &'static str) -> Result<Self> {
        let _gate = device.gate().enter();
        let captured = device.gate().is_mine();
        if !captured
            && bytes > 0
            && let Some(allocator) = external::allocator()
        {
            return Self::allocated(device, allocator.as_ref(), bytes, operation);
        }
        let arena = device.gate().arena();
        let reused = arena.as_ref().and_then(|arena| arena.reuse(bytes));
        let allocate = || match &arena {
            Some(arena) => arena.obtain(bytes),
            None => device.obtain(bytes).inspect(|_| device.accounts().add(bytes)),
        };
        let out_of_memory =
            |error: &gradewise_ffi::Error| error.code() == Some(sys::CUresult::ERROR_OUT_OF_MEMORY);
        let exhausted = || {
            let info = device.context().memory().ok();
            Error::DeviceOutOfMemory {
                operation,
                device: device.ordinal(),
                requested: bytes,
                free: info.map_or(0, |info| info.free),
                total: info.map_or(0, |info| info.total),
                allocated: device.allocated(),
                holders: device.holders().into_iter().take(5).collect(),
            }
        };
        let obtained =
            || {
                if device.accounts().is_beyond_limit(bytes) {
                    return Err(exhausted());
                }
                let memory = match allocate() {
                    // What the pool keeps may be in pieces too small; the system may join them.
                    Err(error) if out_of_memory(&error) && arena.is_none() => {
                        trim(device).and_then(|_| allocate())
                    }
                    other => other,
                };
                memory.map_err(|error| {
                    if out_of_memory(&error) { exhausted() } else { device.error(operation, error) }
                })
            };
        let memory = reused.map_or_else(obtained, Ok)?;
        let origin = arena.map_or(Origin::Pool, Origin::Arena);
        Self::of(device, memory, origin, (bytes, bytes), operation).poisoned(operation)
    }

    /// Memory of another library for a new array.
    fn allocated(
        device: &CudaDevice,
        allocator: &dyn Allocator,
        bytes: usize,
        operation: &'static str,
    ) -> Result<Self> {
        let place = Place::Cuda(device.ordinal());
        let allocation = allocator.allocate(place, bytes).map_err(|error| Error::Allocator {
            operation,
            place,
            requested: bytes,
            message: error.to_string(),
        })?;
        // SAFETY: an allocator hands out memory on the device that lives as long as its owner, and that is in the order of the stream.
        let memory = unsafe { DeviceMemory::borrow(device.stream(), allocation.address, bytes) };
        Self::of(device, memory, Origin::Allocated(allocation.owner), (bytes, 0), operation)
            .poisoned(operation)
    }

    /// Values of another library, to be read only.
    ///
    /// # Safety
    /// `bytes` bytes at `address` must be memory that the device can read, and nobody may write to them, until the owner is dropped.
    pub unsafe fn borrow(device: &CudaDevice, address: u64, bytes: usize, owner: Owner) -> Self {
        // SAFETY: as the caller says.
        let memory = unsafe { DeviceMemory::borrow(device.stream(), address, bytes) };
        Self::of(device, memory, Origin::Borrowed(owner), (bytes, 0), "borrow")
    }

    /// A buffer of a number of bytes, of which some count as this library's.
    fn of(
        device: &CudaDevice,
        memory: DeviceMemory,
        origin: Origin,
        (bytes, counted): (usize, usize),
        operation: &'static str,
    ) -> Self {
        Self {
            device: device.clone(),
            memory: ManuallyDrop::new(memory),
            origin,
            bytes,
            _held: device.accounts().holders.add(operation, counted),
            ticket: Ticket::new(operation, counted, || format!("cuda:{}", device.ordinal())),
        }
    }

    fn poisoned(self, operation: &'static str) -> Result<Self> {
        if debug::poisons() {
            self.memory.fill(memory::POISON).map_err(|error| self.device.error(operation, error))?;
        }
        Ok(self)
    }

    /// Who owns the memory, where that is another library.
    pub fn owner(&self) -> Option<&Owner> {
        match &self.origin {
            Origin::Allocated(owner) | Origin::Borrowed(owner) => Some(owner),
            Origin::Pool | Origin::Arena(_) => None,
        }
    }

    /// Whether the values are another library's.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.origin, Origin::Borrowed(_))
    }

    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub fn pointer(&self) -> u64 {
        self.memory.pointer()
    }

    /// Waits for everything queued on the device.
    fn wait(&self, operation: &'static str) -> Result<()> {
        self.device.stream().synchronize().map_err(|source| self.device.error(operation, source))
    }

    /// Queues a copy from the host.
    pub fn write(&self, offset: usize, source: &[u8], operation: &'static str) -> Result<()> {
        self.device.refuse_in_capture(operation)?;
        self.device.settle_at(self.pointer() + offset as u64)?;
        let _gate = self.device.gate().enter();
        let describe = || format!("copy of {} bytes from the host", source.len());
        transfers::timed(
            operation,
            (Direction::ToDevice, source.len()),
            || self.wait(operation),
            || self.device.queue(operation, describe, || self.memory.write(offset, source)),
        )
    }

    /// Copies to the host, after all work queued before.
    pub fn read(&self, offset: usize, target: &mut [u8], operation: &'static str) -> Result<()> {
        self.device.refuse_in_capture(operation)?;
        self.device.settle_at(self.pointer() + offset as u64)?;
        let _gate = self.device.gate().enter();
        let describe = || format!("copy of {} bytes to the host", target.len());
        // What waits anyway is described before it is lent.
        let described = debug::is_on().then(describe).unwrap_or_default();
        transfers::timed(
            operation,
            (Direction::ToHost, target.len()),
            || self.wait(operation),
            || self.device.queue(operation, || described, || self.memory.read(offset, target)),
        )
    }

    /// Queues a copy from another buffer of the device.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Self,
        source_offset: usize,
        bytes: usize,
        operation: &'static str,
    ) -> Result<()> {
        let _gate = self.device.gate().enter();
        let describe = || format!("copy of {bytes} bytes");
        let copy = || self.memory.copy_from(offset, &source.memory, source_offset, bytes);
        self.device.queue(operation, describe, copy)
    }
}

impl CudaDevice {
    /// Whether copies from `source`, another device, need no host: both are of one driver, and the one can access the other's memory. Such
    /// access, once it is had, is kept.
    pub(crate) fn reaches(&self, source: &Self, operation: &'static str) -> Result<bool> {
        let (here, there) = (self.context(), source.context());
        if !here.driver().is(there.driver()) {
            return Ok(false);
        }
        if here.raw() == there.raw() {
            return Ok(true);
        }
        let access = self.constant(Key::Peer(there.info().ordinal), || {
            let access = match PeerAccess::is_possible(here, there) {
                Ok(true) => PeerAccess::new(here, there).map(Some),
                other => other.map(|_| None),
            };
            access.map_err(|error| self.error(operation, error))
        })?;
        Ok(access.is_some())
    }
}

impl Buffer {
    /// Queues a copy from a buffer of a device that this one's [reaches](CudaDevice::reaches), neither of which this thread captures: after
    /// what is queued on both so far, and before what is queued there from now on.
    pub fn copy_from_peer(
        &self,
        source: &Self,
        source_offset: usize,
        bytes: usize,
        operation: &'static str,
    ) -> Result<()> {
        let (here, there) = (&self.device, &source.device);
        [here, there].into_iter().try_for_each(CudaDevice::settle)?;
        let (_here, _there) = (here.gate().enter(), there.gate().enter());
        let describe = || format!("copy of {bytes} bytes from cuda:{}", there.ordinal());
        here.queue(operation, describe, || {
            let [ready, copied] = [there, here].map(|device| Event::new(device.context(), false));
            let (ready, copied) = (ready?, copied?);
            ready.record(there.stream())?;
            here.stream().wait(&ready)?;
            if here.context().raw() == there.context().raw() {
                self.memory.copy_from(0, &source.memory, source_offset, bytes)?;
            } else {
                self.memory.copy_from_peer(0, &source.memory, source_offset, bytes, here.stream())?;
            }
            // The source's memory may be given back, and used for something else, once the copy is done.
            copied.record(here.stream())?;
            there.stream().wait(&copied)
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let accounts = self.device.accounts();
        // SAFETY: taken once, here; the field is not used again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match &self.origin {
            Origin::Pool => {}
            Origin::Arena(arena) => return arena.give(memory),
            // The owner goes with the buffer, and lets go of the memory.
            Origin::Allocated(_) | Origin::Borrowed(_) => return,
        }
        if let Some(mut session) = self.device.gate().session()
            && let Some(session) = session.as_mut()
        {
            return session.retired.push(accounts.owned_by_graph(memory));
        }
        accounts.remove(self.bytes);
        // Freed in stream order, hence not into another thread's capture.
        let _gate = self.device.gate().enter();
        self.device.keep(memory);
    }
}

/// Waits for the device and returns the pool's free memory to the system; gives its size.
fn trim(device: &CudaDevice) -> Result<usize, gradewise_ffi::Error> {
    let context = device.context();
    device.stream().synchronize()?;
    let pool = default_pool(context)?;
    let before = reserved(device)?;
    device.recycled().clear();
    device.stream().synchronize()?;
    // SAFETY: the pool is the device's own.
    unsafe { context.driver().cuMemPoolTrimTo(pool, 0)? };
    Ok(before.saturating_sub(reserved(device)?))
}

fn reserved(device: &CudaDevice) -> Result<usize, gradewise_ffi::Error> {
    let context = device.context();
    let mut bytes = 0u64;
    // SAFETY: the attribute is a u64; the pool is the device's own.
    unsafe {
        context.driver().cuMemPoolGetAttribute(
            default_pool(context)?,
            sys::pool_attribute::RESERVED_MEM_CURRENT,
            (&raw mut bytes).cast::<c_void>(),
        )?;
    }
    Ok(bytes as usize)
}

impl CudaDevice {
    /// What this process uses of the device's memory, and who holds it.
    ///
    /// # Errors
    /// [`Error::Cuda`] from the driver.
    pub fn memory(&self) -> Result<MemoryReport> {
        const NAME: &str = "memory";
        let info = self.context().memory().map_err(|error| self.error(NAME, error))?;
        let accounts = self.accounts();
        Ok(MemoryReport {
            allocated: accounts.allocated.load(Ordering::Relaxed),
            peak: accounts.peak.load(Ordering::Relaxed),
            reserved: reserved(self).map_err(|error| self.error(NAME, error))?
                + accounts.graphs.load(Ordering::Relaxed),
            free: info.free,
            total: info.total,
            holders: accounts.holders.largest(),
        })
    }

    /// Bytes in arrays that are alive, and in what captured graphs own for theirs.
    pub fn allocated(&self) -> usize {
        self.accounts().allocated.load(Ordering::Relaxed)
    }

    /// The holders of allocated memory, largest first.
    pub fn holders(&self) -> Vec<Holder> {
        self.accounts().holders.largest()
    }

    pub(crate) fn stats(&self) -> Result<Stats> {
        let accounts = self.accounts();
        Ok(Stats {
            allocated: accounts.allocated.load(Ordering::Relaxed),
            reserved: reserved(self).map_err(|error| self.error("memory", error))?
                + accounts.graphs.load(Ordering::Relaxed),
            peak: accounts.peak.load(Ordering::Relaxed),
        })
    }

    /// Refuses, as if there were no more, memory for arrays beyond so many bytes in all; 0 for no limit.
    pub fn set_limit(&self, bytes: usize) {
        self.accounts().limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn raise_peak(&self, bytes: usize) {
        self.accounts().peak.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Resets [`MemoryReport::peak`] to the current allocation.
    pub fn reset_peak(&self) {
        self.accounts().peak.store(self.allocated(), Ordering::Relaxed);
    }

    /// Waits for the device and returns to the system what the pool keeps for reuse; gives its size in bytes.
    ///
    /// # Errors
    /// [`Error::InCapture`] inside a capture; [`Error::Cuda`] from the driver.
    pub fn trim(&self) -> Result<usize> {
        self.refuse_in_capture("trim")?;
        let _gate = self.gate().enter();
        trim(self).map_err(|error| self.error("trim", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_fake_driver::Fake;
    use gradewise_ffi::Driver;

    #[test]
    fn an_element_that_nobody_wrote_is_nan_in_debug_builds() {
        let fake = Fake::new();
        let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
        let buffer = Buffer::new(&device, 64, "test").unwrap();
        let mut bytes = [0; 64];
        buffer.read(0, &mut bytes, "test").unwrap();
        assert_eq!(bytes == [memory::POISON; 64], debug::poisons());
        assert!(!cfg!(debug_assertions) || debug::poisons());
    }
}
