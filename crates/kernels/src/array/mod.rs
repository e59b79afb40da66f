//! Arrays: storage, shape, strides, dtype, device.

mod access;
mod arguments;
mod borrow;
mod cast;
pub(crate) mod copy;
mod create;
mod cuda;
pub(crate) mod elementwise;
pub(crate) mod fill;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod lazy;
#[cfg(feature = "ndarray")]
mod ndarray;
mod positions;
pub(crate) mod rows;
pub(crate) mod strided;
mod views;

pub use borrow::Borrowed;
pub use index::{BorrowedIndex, Index};
pub use positions::Positions;

use crate::{
    Device, Error, Result,
    runtime::{cuda::Buffer, memory::Block},
};
use gradewise_core::{DType, PerAxis, Shape};
use lazy::Host;
use std::{fmt, sync::Arc};

/// A shaped view of shared storage on a device.
///
/// Cloning and viewing share the storage; [`as_mut_slice`](Self::as_mut_slice) copies it first if anyone else holds it.
/// Strides count elements; a stride of 0 repeats.
///
/// ```
/// use gradewise_kernels::{Array, DType, Device, ops};
///
/// let a = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu)?;
/// let turned = a.transpose(0, 1)?; // a view: no copy
/// assert!(turned.shares_storage(&a));
/// assert_eq!((turned.dims(), turned.strides()), (&[3, 2][..], &[1, 3][..]));
/// let product = ops::matmul(&a, &turned, false, false)?;
/// assert_eq!(product.to_vec::<f32>()?, [14.0, 32.0, 32.0, 77.0]);
/// assert_eq!(product.cast(DType::F64)?.dtype(), DType::F64);
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[derive(Clone)]
pub struct Array {
    storage: Storage,
    dtype: DType,
    shape: Shape,
    strides: PerAxis,
    offset: usize,
}

/// Where the elements are.
#[derive(Clone)]
enum Storage {
    Cpu(Arc<Host>),
    Cuda(Arc<Buffer>),
}

impl Array {
    /// The sizes along the axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The sizes along the axes, as a slice.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Distance in elements between neighbours along each axis; 0 along a broadcast axis.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The storage type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        match &self.storage {
            Storage::Cpu(_) => Device::Cpu,
            Storage::Cuda(buffer) => Device::Cuda(buffer.device().clone()),
        }
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size == 0 {
                return true;
            }
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size;
            }
        }
        true
    }

    /// Whether no other array shares the storage, nor another library, so that writing does not copy.
    pub fn is_unique(&self) -> bool {
        match &self.storage {
            Storage::Cpu(host) => {
                let is_borrowed = host.computed().is_some_and(Block::is_borrowed);
                // A value that waits is known to its scope as well, until it is computed.
                Arc::strong_count(host) == 1 && Arc::weak_count(host) == 0 && !is_borrowed
            }
            Storage::Cuda(buffer) => Arc::strong_count(buffer) == 1 && !buffer.is_borrowed(),
        }
    }

    /// Whether both arrays show the same storage.
    pub fn shares_storage(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Storage::Cpu(a), Storage::Cpu(b)) => Arc::ptr_eq(a, b),
            (Storage::Cuda(a), Storage::Cuda(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Bytes of the storage, all of which the array keeps from being freed.
    pub fn storage_bytes(&self) -> usize {
        match &self.storage {
            Storage::Cpu(host) => host.size(),
            Storage::Cuda(buffer) => buffer.bytes(),
        }
    }

    /// Gives the array's memory a name in the [`census`](crate::runtime::memory::census), if it is in there.
    pub fn name(&self, name: &str) {
        match &self.storage {
            // No scope has values wait while there is a census.
            Storage::Cpu(host) => {
                if let Some(block) = host.computed() {
                    block.ticket().name(name);
                }
            }
            Storage::Cuda(buffer) => buffer.ticket().name(name),
        }
    }

    /// Refuses another shape, on behalf of `operation`; `reason` says where the expected shape comes from.
    ///
    /// # Errors
    /// A shape error.
    pub fn require_shape(
        &self,
        operation: &'static str,
        argument: &'static str,
        expected: &[usize],
        reason: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.dims() == expected {
            return Ok(());
        }
        Err(gradewise_core::Error::Shape {
            operation,
            argument,
            actual: self.shape.clone(),
            expected: Shape::from(expected).to_string(),
            reason: reason(),
        }
        .into())
    }

    /// Refuses a dtype or device other than that of `reference`, on behalf of `operation`.
    ///
    /// # Errors
    /// A dtype or device error that names `argument`.
    pub fn require_like(
        &self,
        reference: &Self,
        operation: &'static str,
        argument: &'static str,
    ) -> Result<()> {
        if self.dtype != reference.dtype {
            let (actual, expected) = (self.dtype, reference.dtype);
            return Err(gradewise_core::Error::DType { operation, argument, actual, expected }.into());
        }
        if self.is_beside(reference) {
            return Ok(());
        }
        Err(Error::DeviceMismatch {
            operation,
            argument,
            actual: self.device(),
            expected: reference.device(),
        })
    }

    /// Whether both arrays are at the same place.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Storage::Cpu(_), Storage::Cpu(_)) => true,
            (Storage::Cuda(a), Storage::Cuda(b)) => a.device() == b.device(),
            _ => false,
        }
    }

    /// Refuses what is at another `device` than this array, beside which `operation` reads it.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], which names `argument`.
    pub fn require_beside(
        &self,
        device: &Device,
        operation: &'static str,
        argument: &'static str,
    ) -> Result<()> {
        let expected = self.device();
        if *device == expected {
            return Ok(());
        }
        Err(Error::DeviceMismatch { operation, argument, actual: device.clone(), expected })
    }
}

/// Refuses an axis outside `shape`, on behalf of `operation`.
pub(crate) fn require_axis(operation: &'static str, axis: usize, shape: &Shape) -> Result<()> {
    if axis < shape.rank() {
        return Ok(());
    }
    Err(gradewise_core::Error::Axis { operation, axis, shape: shape.clone() }.into())
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {} on {}, strides {:?})", self.dtype, self.shape, self.device(), self.strides)
    }
}
