//! Arrays over memory of other libraries, and what other libraries need to know of arrays.

use super::{Array, Storage, lazy::Host};
use crate::{
    CudaDevice, Device, Error, Result,
    runtime::{
        cuda::Buffer,
        external::{Owner, Place},
        memory::Block,
    },
};
use gradewise_core::{DType, PerAxis, Shape};
use gradewise_ffi::DeviceMemory;
use std::{ptr::NonNull, sync::Arc};

/// Values of another library, described as an array.
pub struct Borrowed<'a> {
    /// The address of the first element: on the host a pointer, on a CUDA device an address of its memory.
    pub address: u64,
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes along the axes.
    pub shape: &'a [usize],
    /// Distances in elements between neighbours along each axis; 0 along an axis that repeats.
    pub strides: &'a [usize],
    /// What keeps the values where they are, and unchanged.
    pub owner: Owner,
    /// Whether the library itself says which device the memory is on. Otherwise the driver is asked, which takes it a microsecond.
    pub is_known: bool,
}

impl Array {
    /// An array over values of another library, without a copy. Writing to it copies it first, so the values stay as they are.
    ///
    /// ```
    /// use gradewise_kernels::{Array, Borrowed, DType, Device, ops};
    /// use std::sync::Arc;
    ///
    /// let theirs: Arc<Vec<f32>> = Arc::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let borrowed = Borrowed {
    ///     address: theirs.as_ptr().expose_provenance() as u64,
    ///     dtype: DType::F32,
    ///     shape: &[2, 3],
    ///     strides: &[3, 1],
    ///     owner: Box::new(Arc::clone(&theirs)),
    ///     is_known: true,
    /// };
    /// // SAFETY: the vector has six elements, and nobody changes them while the owner, a part of it, lives.
    /// let array = unsafe { Array::borrow(borrowed, &Device::Cpu) }?;
    /// assert_eq!(ops::square(&array)?.to_vec::<f32>()?, [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]);
    /// drop(array);
    /// assert_eq!(Arc::strong_count(&theirs), 1);
    /// # Ok::<(), gradewise_kernels::Error>(())
    /// ```
    ///
    /// # Safety
    /// The memory from the first to the last element that shape and strides reach must be readable at the device, and nobody may write to
    /// it, until the owner is dropped; on a CUDA device, work of others that wrote it must come before the operators' in stream order.
    ///
    /// # Errors
    /// [`Error::Borrow`]: a null address with elements, one that is not a multiple of the element's size, one that the driver says is not
    /// on the device, where it is asked; strides of another number than sizes, or that reach beyond what can be addressed.
    pub unsafe fn borrow(values: Borrowed<'_>, device: &Device) -> Result<Self> {
        let Borrowed { address, dtype, shape, strides, owner, is_known } = values;
        let place = match device {
            Device::Cpu => Place::Host,
            Device::Cuda(cuda) => Place::Cuda(cuda.ordinal()),
        };
        let refuse = |reason: String| Error::Borrow {
            address,
            dtype,
            shape: Shape::from(shape),
            strides: strides.to_vec(),
            place,
            reason,
        };
        if shape.len() != strides.len() {
            return Err(refuse(format!("there are {} strides for {} axes", strides.len(), shape.len())));
        }
        // Nothing is read of an array without elements, whose address may be anything.
        if shape.contains(&0) {
            return Self::zeros(shape, dtype, device);
        }
        let reach = shape.iter().zip(strides).try_fold(0usize, |reach, (&size, &stride)| {
            (size - 1).checked_mul(stride).and_then(|last| reach.checked_add(last))
        });
        let elements = shape.iter().try_fold(1usize, |elements, &size| elements.checked_mul(size));
        let bytes = reach
            .and_then(|reach| reach.checked_add(1))
            .and_then(|count| count.checked_mul(dtype.size()))
            .filter(|&bytes| {
                bytes <= isize::MAX as usize && elements.is_some_and(|n| n <= isize::MAX as usize)
            })
            .ok_or_else(|| refuse("its strides reach beyond what can be addressed".to_owned()))?;
        if address == 0 {
            return Err(refuse("the address is null".to_owned()));
        }
        if !address.is_multiple_of(dtype.size() as u64) {
            return Err(refuse(format!("the address is not a multiple of {}", dtype.size())));
        }
        let storage = match device {
            Device::Cpu => {
                let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
                let pointer =
                    NonNull::new(pointer).ok_or_else(|| refuse("the address is null".to_owned()))?;
                // SAFETY: as the caller says.
                Storage::Cpu(Arc::new(Host::new(unsafe { Block::borrow(pointer, bytes, owner) })))
            }
            Device::Cuda(cuda) => {
                if !is_known && let Some(reason) = elsewhere(cuda, address)? {
                    return Err(refuse(reason));
                }
                // SAFETY: as the caller says.
                Storage::Cuda(Arc::new(unsafe { Buffer::borrow(cuda, address, bytes, owner) }))
            }
        };
        Ok(Self { storage, dtype, shape: shape.into(), strides: PerAxis::from(strides), offset: 0 })
    }

    /// The address of the first element, in the address space of the array's device. It stays the same while the array lives. 0 for one of a
    /// [scope](crate::Device::fused) that there is no memory to compute.
    pub fn address(&self) -> u64 {
        match &self.storage {
            Storage::Cpu(host) => {
                let Ok(block) = host.block() else { return 0 };
                let start = block.bytes().as_ptr().expose_provenance() as u64;
                start + (self.offset * self.dtype.size()) as u64
            }
            Storage::Cuda(_) => self.cuda_address(),
        }
    }

    /// Position in the storage of the first element, in elements.
    pub fn storage_offset(&self) -> usize {
        self.offset
    }

    /// All elements of the storage that the array shows a part of, in a row.
    #[must_use]
    pub fn whole_storage(&self) -> Self {
        let shape = Shape::from([self.storage_bytes() / self.dtype.size()]);
        let strides = shape.contiguous_strides();
        Self { storage: self.storage.clone(), dtype: self.dtype, shape, strides, offset: 0 }
    }

    /// What keeps the array's memory alive, where another library owns it: the owner that came with [borrowed](Self::borrow) values, or
    /// with the [allocation](crate::runtime::external::Allocation) that the array is in.
    pub fn owner(&self) -> Option<&Owner> {
        match &self.storage {
            Storage::Cpu(host) => host.block().ok()?.owner(),
            Storage::Cuda(buffer) => buffer.owner(),
        }
    }

    /// Whether the array shows values of another library, rather than memory for new arrays.
    pub fn is_borrowed(&self) -> bool {
        match &self.storage {
            Storage::Cpu(host) => host.computed().is_some_and(Block::is_borrowed),
            Storage::Cuda(buffer) => buffer.is_borrowed(),
        }
    }
}

/// Why an address is not in memory of the device, if it is not.
fn elsewhere(device: &CudaDevice, address: u64) -> Result<Option<String>> {
    let found = DeviceMemory::device_of(device.context().driver(), address)
        .map_err(|source| device.error("borrow", source))?;
    Ok(match found {
        Some(ordinal) if ordinal == device.info().ordinal => None,
        Some(ordinal) => Some(format!("the memory is on cuda:{ordinal}")),
        None => Some("the driver knows no device memory there".to_owned()),
    })
}
