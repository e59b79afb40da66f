//! Results in the buffers that XLA gives for them, and workspaces.

use super::{Failure, alignment::allocate_aligned, ffi, runtime::Runtime};
use gradewise_core::DType;
use gradewise_kernels::{
    Array, Borrowed, Device,
    external::{Allocation, AllocationError, Allocator, Place},
};
use std::{
    alloc::Layout,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The alignment of memory for arrays, on the host and on devices.
const HOST_ALIGNMENT: usize = 64;
const DEVICE_ALIGNMENT: usize = 256;

/// The alignment of device memory that XLA lets handlers ask for. Its allocator of CUDA devices gives multiples of 256.
const XLA_ALIGNMENT: usize = 16;

/// A buffer for a result.
pub struct Target {
    pub address: u64,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl Target {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

/// The memory of a call: allocations of exactly the size of a result are in its buffer, one at a time.
pub struct Memory {
    targets: Vec<Target>,
    is_free: Vec<AtomicBool>,
    runtime: Runtime,
}

impl Memory {
    pub fn new(targets: Vec<Target>, runtime: Runtime) -> Arc<Self> {
        let is_free = targets.iter().map(|_| AtomicBool::new(true)).collect();
        Arc::new(Self { targets, is_free, runtime })
    }
}

/// Keeps a result's buffer from being handed out again.
struct Taken {
    memory: Arc<Memory>,
    index: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.is_free[self.index].store(true, Ordering::Release);
    }
}

/// A block of the host for a workspace.
struct Block(*mut u8, Layout);

// SAFETY: plain memory that this value alone frees.
unsafe impl Send for Block {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { std::alloc::dealloc(self.0, self.1) };
    }
}

/// A block of XLA's memory of the device for a workspace.
struct Scratch {
    runtime: Runtime,
    address: *mut std::ffi::c_void,
    bytes: usize,
}

// SAFETY: the address is memory of the device that this value alone frees, by functions of the runtime, which may be called on any thread
// during the call.
unsafe impl Send for Scratch {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Scratch {}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.runtime.free(self.address, self.bytes);
    }
}

/// The allocator of a call, for `external::with_allocator`.
pub struct Lending(pub Arc<Memory>);

// SAFETY: a result's buffer is as large and aligned as asked, and handed out again only when its owner is dropped; nobody else uses it
// during the call. Other blocks are new. On a device, XLA orders all of them with the stream of the call.
unsafe impl Allocator for Lending {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        let Self(memory) = self;
        let alignment = if place == Place::Host { HOST_ALIGNMENT } else { DEVICE_ALIGNMENT };
        for (index, target) in memory.targets.iter().enumerate() {
            let fits = target.bytes() == bytes && target.address.is_multiple_of(alignment as u64);
            if fits && memory.is_free[index].swap(false, Ordering::Acquire) {
                let owner = Taken { memory: Arc::clone(memory), index };
                return Ok(Allocation { address: target.address, owner: Box::new(owner) });
            }
        }
        if place != Place::Host {
            let runtime = memory.runtime;
            let allocate = |bytes| Ok(runtime.allocate(bytes, XLA_ALIGNMENT)?.expose_provenance());
            let free = |address, bytes| runtime.free(ptr::with_exposed_provenance_mut(address), bytes);
            let block = allocate_aligned(bytes, DEVICE_ALIGNMENT, XLA_ALIGNMENT, allocate, free)
                .map_err(|failure: Failure| failure.message)?;
            let address = ptr::with_exposed_provenance_mut(block.address);
            let owner = Scratch { runtime, address, bytes: block.bytes };
            return Ok(Allocation { address: block.aligned as u64, owner: Box::new(owner) });
        }
        let layout = Layout::from_size_align(bytes, HOST_ALIGNMENT)?;
        // SAFETY: the layout is of more than no bytes, as an allocator is asked for.
        let block = unsafe { std::alloc::alloc(layout) };
        if block.is_null() {
            return Err(format!("there are no {bytes} bytes left").into());
        }
        Ok(Allocation { address: block.expose_provenance() as u64, owner: Box::new(Block(block, layout)) })
    }
}

impl Memory {
    /// Puts results into the buffers for them; zeros for those that there are not. Called outside of the allocator, in the stream.
    pub fn finish(&self, results: Vec<Option<Array>>, device: &Device) -> Result<(), Failure> {
        if results.len() != self.targets.len() {
            let message = format!("there are {} results for {} buffers", results.len(), self.targets.len());
            return Err(Failure { code: ffi::code::INTERNAL, message });
        }
        let mut left = Vec::new();
        for (result, target) in results.into_iter().zip(&self.targets) {
            let result = match result {
                Some(array) => array,
                None => Array::zeros(&target.shape[..], target.dtype, device)?,
            };
            if result.dims() != target.shape || result.dtype() != target.dtype {
                let message = format!(
                    "a result has shape {:?} and dtype {}, its buffer {:?} and {}",
                    result.dims(),
                    result.dtype(),
                    target.shape,
                    target.dtype
                );
                return Err(Failure { code: ffi::code::INTERNAL, message });
            }
            if target.bytes() == 0 || (result.is_contiguous() && result.address() == target.address) {
                continue;
            }
            // In the buffer of another result, it would be overwritten before it is copied.
            let is_in_a_buffer = result.owner().is_some_and(|owner| owner.is::<Taken>());
            let source = if is_in_a_buffer { result.copy()? } else { result.contiguous()? };
            left.push((source, target));
        }
        for (source, target) in left {
            match device {
                Device::Cpu => {
                    let from = ptr::with_exposed_provenance::<u8>(source.address() as usize);
                    let to = ptr::with_exposed_provenance_mut::<u8>(target.address as usize);
                    // SAFETY: both have so many bytes: the source is contiguous with the target's shape, and in memory of its own.
                    unsafe { ptr::copy_nonoverlapping(from, to, target.bytes()) };
                }
                Device::Cuda(_) => {
                    let strides =
                        gradewise_core::Shape::from(&target.shape[..]).contiguous_strides().to_vec();
                    let borrowed = Borrowed {
                        address: target.address,
                        dtype: target.dtype,
                        shape: &target.shape,
                        strides: &strides,
                        owner: Box::new(()),
                        is_known: true,
                    };
                    // SAFETY: XLA's buffer for this result, which nobody else uses during the call.
                    unsafe { Array::borrow(borrowed, device) }?.overwrite_shared(&source)?;
                }
            }
        }
        Ok(())
    }
}
