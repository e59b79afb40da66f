//! Reading and writing elements from the host.

use super::{Array, Storage};
use crate::{
    Device, Element, Error, Result,
    array::{copy, lazy::Host},
    cpu::element::with_storage,
    runtime::memory::{self, Block},
};
use gradewise_core::{DType, Shape};
use std::sync::Arc;

impl Array {
    /// A new contiguous array whose elements `fill` writes into memory with unspecified contents.
    ///
    /// This is how operators make their results: no pass over the memory other than their own. Whatever `fill` leaves
    /// unwritten is NaN in builds with debug assertions and garbage otherwise.
    ///
    /// # Errors
    /// If the device cannot hold the dtype or is out of memory.
    pub fn build<T: Element>(
        shape: impl Into<Shape>,
        device: &Device,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<Self> {
        Self::build_as("build", shape.into(), device, fill)
    }

    /// [`build`](Self::build) where filling can fail, and has a result of its own: several arrays are filled at once by nesting.
    pub(crate) fn build_with<T: Element, R>(
        shape: impl Into<Shape>,
        device: &Device,
        fill: impl FnOnce(&mut [T]) -> Result<R>,
    ) -> Result<(Self, R)> {
        let mut result = None;
        let array = Self::build(shape, device, |out| result = Some(fill(out)))?;
        let result = result.unwrap_or_else(|| unreachable!("`build` calls its argument"));
        Ok((array, result?))
    }

    /// [`build`](Self::build) on behalf of `operation`, unless another one has named itself.
    pub(super) fn build_as<T: Element>(
        operation: &'static str,
        shape: Shape,
        device: &Device,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<Self> {
        let mut fill = Some(fill);
        Self::build_by(operation, shape, device, &mut |out| {
            if let Some(fill) = fill.take() {
                fill(out);
            }
        })
    }

    /// [`build_as`](Self::build_as), compiled once for a dtype instead of once for each place where an operator fills its result.
    #[inline(never)]
    fn build_by<T: Element>(
        operation: &'static str,
        shape: Shape,
        device: &Device,
        fill: &mut dyn FnMut(&mut [T]),
    ) -> Result<Self> {
        let elements = shape.elements();
        match device {
            Device::Cpu => {
                let mut block = Block::new(elements.saturating_mul(size_of::<T>()), operation)?;
                fill(bytemuck::cast_slice_mut(block.bytes_mut()));
                let strides = shape.contiguous_strides();
                Ok(Self {
                    storage: Storage::Cpu(Arc::new(Host::new(block))),
                    dtype: T::DTYPE,
                    shape,
                    strides,
                    offset: 0,
                })
            }
            Device::Cuda(cuda) => {
                let mut values = memory::vector(operation, elements)?;
                values.resize(elements, T::nan());
                fill(&mut values);
                Self::upload(operation, &values, shape, cuda)
            }
        }
    }

    /// An array on the host in the memory of `values`, of which there are as many as the shape has elements.
    pub(super) fn adopt<T: Element>(operation: &'static str, values: Vec<T>, shape: Shape) -> Result<Self> {
        let storage = Storage::Cpu(Arc::new(Host::new(Block::from_vec(values, operation)?)));
        let strides = shape.contiguous_strides();
        Ok(Self { storage, dtype: T::DTYPE, shape, strides, offset: 0 })
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// If the view is not contiguous, `T` is not its dtype, or it is not on the host.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        const NAME: &str = "as_slice";
        if !self.is_contiguous() {
            let (shape, strides) = (self.shape.clone(), self.strides.to_vec());
            return Err(Error::NotContiguous { operation: NAME, shape, strides });
        }
        let (elements, offset) = (self.elements(), self.offset);
        // An empty view may point past the end of its storage.
        let range = if elements == 0 { 0..0 } else { offset..offset + elements };
        Ok(&self.storage_slice::<T>(NAME)?[range])
    }

    /// The elements in row-major order, for writing. Copies first if the storage is shared or the view not contiguous,
    /// so that no other array changes.
    ///
    /// # Errors
    /// If `T` is not the dtype, the array is not on the host, or a copy finds no memory.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.require_element::<T>("as_mut_slice")?;
        if let Storage::Cpu(host) = &self.storage {
            host.block()?;
        }
        if !(self.is_contiguous() && self.is_unique()) {
            *self = copy::own(self)?;
        }
        let elements = self.elements();
        let range = if elements == 0 { 0..0 } else { self.offset..self.offset + elements };
        match &mut self.storage {
            Storage::Cpu(host) => match Arc::get_mut(host).and_then(Host::computed_mut) {
                Some(block) => Ok(&mut bytemuck::cast_slice_mut(block.bytes_mut())[range]),
                None => unreachable!("storage that was just found or made unique"),
            },
            Storage::Cuda(buffer) => {
                let device = Device::Cuda(buffer.device().clone());
                Err(Error::NotOnHost { operation: "as_mut_slice", device })
            }
        }
    }

    /// The elements in row-major order, copied.
    ///
    /// # Errors
    /// If `T` is not the dtype; if there is no memory, as for a broadcast view of more elements than fit.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        const NAME: &str = "to_vec";
        self.require_element::<T>(NAME)?;
        if let Storage::Cuda(_) = &self.storage {
            return self.download(NAME);
        }
        let mut out = memory::vector(NAME, self.elements())?;
        if self.is_contiguous() {
            out.extend_from_slice(self.as_slice::<T>()?);
            return Ok(out);
        }
        out.resize(self.elements(), T::zero());
        let source = self.strided_slice::<T>(NAME)?;
        copy::copy_into(self.dims(), source, (&mut out, &self.shape.contiguous_strides()));
        Ok(out)
    }

    /// The elements in row-major order, widened to double precision.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        if self.dtype == DType::F64 {
            return self.to_vec();
        }
        with_storage!(self.dtype, T => {
            let values = self.to_vec::<T>()?;
            let mut wide = memory::vector("to_f64_vec", values.len())?;
            wide.extend(values.into_iter().map(Element::widen));
            Ok(wide)
        })
    }

    /// The value of an array of one element, whatever its rank.
    ///
    /// # Errors
    /// If there is not exactly one element.
    pub fn item(&self) -> Result<f64> {
        const NAME: &str = "item";
        if self.elements() != 1 {
            return Err(gradewise_core::Error::Shape {
                operation: NAME,
                argument: "self",
                actual: self.shape.clone(),
                expected: "one element".to_owned(),
                reason: "only a single element has a value as a number".to_owned(),
            }
            .into());
        }
        let value = self.to_f64_vec()?;
        Ok(value[0])
    }

    /// The storage of a view from its first element on, and the strides.
    ///
    /// # Errors
    /// As [`storage_slice`](Self::storage_slice).
    pub(crate) fn strided_slice<T: Element>(&self, operation: &'static str) -> Result<(&[T], &[usize])> {
        let storage = self.storage_slice::<T>(operation)?;
        // An empty view may lie at the end of its storage.
        Ok((&storage[self.offset.min(storage.len())..], self.strides()))
    }

    /// All of the storage that the view looks into, to be addressed with offset and strides.
    pub(crate) fn storage_slice<T: Element>(&self, operation: &'static str) -> Result<&[T]> {
        self.require_element::<T>(operation)?;
        match &self.storage {
            Storage::Cpu(host) => Ok(bytemuck::cast_slice(host.block()?.bytes())),
            Storage::Cuda(buffer) => {
                Err(Error::NotOnHost { operation, device: Device::Cuda(buffer.device().clone()) })
            }
        }
    }

    /// Position in the storage of the view's first element.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    fn require_element<T: Element>(&self, operation: &'static str) -> Result<()> {
        if self.dtype == T::DTYPE {
            return Ok(());
        }
        let (actual, expected) = (self.dtype, T::DTYPE);
        Err(gradewise_core::Error::DType { operation, argument: "self", actual, expected }.into())
    }
}
