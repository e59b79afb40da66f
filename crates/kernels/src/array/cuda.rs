//! Arrays on CUDA devices: memory for results, addresses for kernels, transfers.

use super::{Array, Storage};
use crate::{
    CudaDevice, Device, Element, Error, Result,
    array::{copy, layout::collapse},
    runtime::{
        cuda::{
            Buffer,
            fuse::{Description, Function, Operand, PartialSum},
        },
        memory,
    },
};
use gradewise_core::{DType, Shape};
use std::sync::Arc;

impl Array {
    /// A contiguous array for a kernel of `operation` to fill; its contents are unspecified (NaN if poisoned).
    pub(crate) fn for_kernel(
        operation: &'static str,
        shape: impl Into<Shape>,
        dtype: DType,
        device: &CudaDevice,
    ) -> Result<Self> {
        let shape = shape.into();
        let bytes = shape.elements().saturating_mul(dtype.size());
        let buffer = Buffer::new(device, bytes, operation)?;
        let strides = shape.contiguous_strides();
        Ok(Self { storage: Storage::Cuda(Arc::new(buffer)), dtype, shape, strides, offset: 0 })
    }

    /// The address of the first element on the device; `None` for an array on the host.
    pub(crate) fn device_address(&self) -> Option<u64> {
        match &self.storage {
            Storage::Cpu(_) => None,
            Storage::Cuda(buffer) => Some(buffer.pointer() + (self.offset * self.dtype.size()) as u64),
        }
    }

    /// The address of the first element of an array that a launcher knows to be on its device; 0 for one on the host. Kernels that get
    /// an array itself as an argument refuse it there.
    pub(crate) fn cuda_address(&self) -> u64 {
        let address = self.device_address();
        debug_assert!(address.is_some(), "launchers check devices first");
        address.unwrap_or_default()
    }

    /// The array as an operand of a [value](Description) on its device; `None` for one on the host.
    pub(crate) fn operand(&self) -> Option<Operand> {
        let Storage::Cuda(buffer) = &self.storage else { return None };
        let (sizes, [strides]) = collapse(self.dims(), [&self.strides[..]]);
        Some(Operand { buffer: Arc::clone(buffer), dtype: self.dtype, offset: self.offset, sizes, strides })
    }

    /// What a kernel computes into this array, which must be new: a function of elements of other arrays. `None` if the array has been
    /// read or shared, or if it is not all of its storage.
    pub(crate) fn described(&self, function: Function, operands: &[&Self]) -> Option<Description> {
        let Storage::Cuda(out) = &self.storage else { return None };
        let (dtype, elements) = (self.dtype, self.elements());
        let is_new =
            Arc::strong_count(out) == 1 && self.offset == 0 && out.bytes() == elements * dtype.size();
        let operands: Option<Vec<Operand>> = operands.iter().map(|array| array.operand()).collect();
        let (true, Some(operands)) = (is_new && elements > 0, operands) else { return None };
        Some(Description { function, operands, out: Arc::clone(out), dtype, elements })
    }

    /// The sum over the leading axis of contiguous partial results into this array, which must be new, contiguous and all of its storage.
    pub(crate) fn partial_sum(
        &self,
        operation: &'static str,
        partials: &Self,
        chunks: usize,
        scale: f64,
    ) -> Option<PartialSum> {
        let (Storage::Cuda(out), Storage::Cuda(from)) = (&self.storage, &partials.storage) else {
            return None;
        };
        let (dtype, count) = (self.dtype, self.elements());
        let is_new = Arc::strong_count(out) == 1 && self.offset == 0 && out.bytes() == count * dtype.size();
        (is_new && count > 0).then(|| PartialSum {
            operation,
            partials: Arc::clone(from),
            from: partials.cuda_address(),
            out: Arc::clone(out),
            dtype,
            chunks,
            count,
            scale,
        })
    }

    /// Whether the array's value waits to be computed, in a capture of this thread.
    pub(crate) fn waits(&self) -> bool {
        matches!(&self.storage, Storage::Cuda(buffer) if buffer.device().awaits(buffer))
    }

    /// Makes the array contiguous and the only one that shows its storage, so that changing it in place changes nothing else.
    ///
    /// # Errors
    /// If a copy finds no memory.
    pub fn make_unique(&mut self) -> Result<()> {
        if !(self.is_contiguous() && self.is_unique()) {
            *self = copy::own(self)?;
        }
        Ok(())
    }

    pub(super) fn upload<T: Element>(
        operation: &'static str,
        values: &[T],
        shape: Shape,
        device: &CudaDevice,
    ) -> Result<Self> {
        let array = Self::for_kernel(operation, shape, T::DTYPE, device)?;
        if let Storage::Cuda(buffer) = &array.storage {
            buffer.write(0, bytemuck::cast_slice(values), operation)?;
        }
        Ok(array)
    }

    pub(super) fn download<T: Element>(&self, operation: &'static str) -> Result<Vec<T>> {
        // An empty view may lie past the end of its storage.
        if self.elements() == 0 {
            return Ok(Vec::new());
        }
        let source = self.contiguous()?;
        let Storage::Cuda(buffer) = &source.storage else {
            return Err(Error::NotOnHost { operation, device: Device::Cpu });
        };
        let mut values = memory::vector(operation, source.elements())?;
        values.resize(source.elements(), T::nan());
        buffer.read(source.offset * size_of::<T>(), bytemuck::cast_slice_mut(&mut values), operation)?;
        Ok(values)
    }

    /// A copy on `target`, which is another device, made by the devices alone; `None` if they cannot.
    pub(super) fn to_peer(&self, target: &CudaDevice) -> Result<Option<Self>> {
        const NAME: &str = "to_device";
        let Storage::Cuda(buffer) = &self.storage else { return Ok(None) };
        target.refuse_in_capture(NAME)?;
        buffer.device().refuse_in_capture(NAME)?;
        if !target.reaches(buffer.device(), NAME)? {
            return Ok(None);
        }
        let source = self.contiguous()?;
        let Storage::Cuda(from) = &source.storage else { return Ok(None) };
        let copy = Self::for_kernel(NAME, &self.shape, self.dtype, target)?;
        if let Storage::Cuda(buffer) = &copy.storage {
            let size = self.dtype.size();
            buffer.copy_from_peer(from, source.offset * size, self.elements() * size, NAME)?;
        }
        Ok(Some(copy))
    }

    /// Overwrites the elements in place with those of `source`, of the same shape and dtype, on the same device or the host.
    ///
    /// The one exception to copying before writing: every array that shares this storage changes with it, views and clones, and what a graph
    /// of gradients kept. That is how captured work, which reads fixed addresses, gets new input. For anything else assign a new array.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that differ; a view that is not contiguous; an array on the host.
    pub fn overwrite_shared(&self, source: &Self) -> Result<()> {
        const NAME: &str = "overwrite_shared";
        if source.device() != Device::Cpu {
            source.require_like(self, NAME, "source")?;
        } else if source.dtype != self.dtype {
            let (actual, expected) = (source.dtype, self.dtype);
            return Err(gradewise_core::Error::DType {
                operation: NAME,
                argument: "source",
                actual,
                expected,
            }
            .into());
        }
        source.require_shape(NAME, "source", self.dims(), || "it replaces every element".to_owned())?;
        if !self.is_contiguous() {
            let (shape, strides) = (self.shape.clone(), self.strides.to_vec());
            return Err(Error::NotContiguous { operation: NAME, shape, strides });
        }
        let source = source.contiguous()?;
        // What waits may read the elements as they were, unless nothing else holds them.
        if let Storage::Cuda(buffer) = &self.storage {
            match source.device_address() {
                Some(address) if self.is_unique() => buffer.device().settle_at(address)?,
                _ => buffer.device().settle()?,
            }
        }
        match (&self.storage, &source.storage) {
            (Storage::Cuda(target), Storage::Cpu(host)) => {
                let size = self.dtype.size();
                let range = source.offset * size..(source.offset + self.elements()) * size;
                target.write(self.offset * size, &host.block()?.bytes()[range], NAME)
            }
            (Storage::Cuda(target), Storage::Cuda(from)) => {
                let size = self.dtype.size();
                target.copy_from(self.offset * size, from, source.offset * size, self.elements() * size, NAME)
            }
            _ => Err(Error::Argument {
                operation: NAME,
                argument: "self",
                actual: "an array on the host".to_owned(),
                expected: "an array on a CUDA device",
            }),
        }
    }
}
