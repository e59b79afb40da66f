//! Results in vectors that become candle's storages.

use crate::{Error, target::Target};
use candle_core::{CpuStorage, Error as CandleError, Result as CandleResult, Storage};
use gradewise_core::DType;
use gradewise_kernels::{
    Array,
    external::{ALIGNMENT, Allocation, AllocationError, Allocator, Place, with_allocator},
};
use half::{bf16, f16};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a result until it is a storage: a vector with room for the elements, and without any as long as operators have
/// not written them.
struct Memory(Mutex<Option<CpuStorage>>);

/// Memory of results that operators may expect to begin at a multiple of 16, where a vector's does not.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Line(#[allow(dead_code)] [u8; ALIGNMENT]);

/// Hands out vectors with elements of a dtype.
struct Vectors(DType);

/// A vector with room for `bytes`, and where the room begins.
fn room<T>(bytes: usize, storage: fn(Vec<T>) -> CpuStorage) -> Result<(usize, CpuStorage), Error> {
    let mut values: Vec<T> = Vec::new();
    values.try_reserve_exact(bytes.div_ceil(size_of::<T>())).map_err(|_| Error::Memory { bytes })?;
    Ok((values.as_mut_ptr().expose_provenance(), storage(values)))
}

// SAFETY: each allocation is a vector of its own with room for as many bytes, which its owner keeps and nobody else knows; on
// the host alone, and at a multiple of 16.
unsafe impl Allocator for Vectors {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        if place != Place::Host {
            return Err(format!("memory on {place} was asked for in an operation on the host").into());
        }
        let (address, storage) = match self.0 {
            DType::F64 => room::<f64>(bytes, CpuStorage::F64),
            DType::F32 => room::<f32>(bytes, CpuStorage::F32),
            DType::BF16 => room::<bf16>(bytes, CpuStorage::BF16),
            DType::F16 => room::<f16>(bytes, CpuStorage::F16),
        }?;
        if address.is_multiple_of(ALIGNMENT) {
            let owner = Box::new(Memory(Mutex::new(Some(storage))));
            return Ok(Allocation { address: address as u64, owner });
        }
        // The allocator gives no more than the elements need. What is computed here is copied in the end.
        let mut lines = vec![Line([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)];
        let address = lines.as_mut_ptr().expose_provenance() as u64;
        Ok(Allocation { address, owner: Box::new(lines) })
    }
}

/// The CPU.
pub(crate) struct Host;

/// A vector as a storage.
pub(crate) struct Taken(pub CpuStorage);

impl From<Taken> for Storage {
    fn from(Taken(storage): Taken) -> Self {
        Self::Cpu(storage)
    }
}

impl Target for Host {
    type Storage = Taken;

    fn run<R>(&self, dtype: DType, work: impl FnOnce() -> R) -> CandleResult<R> {
        Ok(with_allocator(Arc::new(Vectors(dtype)), work))
    }

    fn storage(&self, array: Array) -> CandleResult<Taken> {
        match taken(&array) {
            Some(storage) => Ok(storage),
            None => match array.dtype() {
                DType::F64 => array.to_vec().map(CpuStorage::F64),
                DType::F32 => array.to_vec().map(CpuStorage::F32),
                DType::BF16 => array.to_vec().map(CpuStorage::BF16),
                DType::F16 => array.to_vec().map(CpuStorage::F16),
            }
            .map_err(CandleError::wrap),
        }
        .map(Taken)
    }
}

/// The vector that an array which nothing else shares is all of. The array must not be read any more.
fn taken(array: &Array) -> Option<CpuStorage> {
    /// The vector with the elements that were written.
    ///
    /// # Safety
    /// So many elements must have been written.
    unsafe fn filled<T>(mut values: Vec<T>, elements: usize) -> Option<Vec<T>> {
        debug_assert!(values.is_empty());
        if values.capacity() < elements {
            return None;
        }
        // SAFETY: there is room for so many, and they were written, as the caller says.
        unsafe { values.set_len(elements) };
        Some(values)
    }
    let memory = array.owner()?.downcast_ref::<Memory>()?;
    let elements = array.elements();
    let is_all = array.storage_offset() == 0 && array.storage_bytes() == elements * array.dtype().size();
    if !(array.is_unique() && array.is_contiguous() && is_all) {
        return None;
    }
    let mut place = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
    // Of another dtype than the vector if it is that of a workspace; the vector stays where it is.
    match (array.dtype(), place.as_ref()?) {
        (DType::F64, CpuStorage::F64(_))
        | (DType::F32, CpuStorage::F32(_))
        | (DType::BF16, CpuStorage::BF16(_))
        | (DType::F16, CpuStorage::F16(_)) => {}
        _ => return None,
    }
    let values = place.take()?;
    // SAFETY: the array shows as many elements, all of which its operator wrote before it returned the array.
    unsafe {
        match values {
            CpuStorage::F64(values) => filled(values, elements).map(CpuStorage::F64),
            CpuStorage::F32(values) => filled(values, elements).map(CpuStorage::F32),
            CpuStorage::BF16(values) => filled(values, elements).map(CpuStorage::BF16),
            CpuStorage::F16(values) => filled(values, elements).map(CpuStorage::F16),
            _ => None,
        }
    }
}
