//! candle's tensors as arrays, over the memory in which candle has them.

use crate::{Error, error::Origin};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, DType as CandleDType, Error as CandleError, Layout, MetalStorage,
    Result, Shape, Tensor,
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Borrowed, Device};
use std::cell::RefCell;

/// The array over a tensor's values on the host. `owner` is the tensor: the array keeps it.
pub(crate) fn on_host(
    origin: Origin,
    storage: &CpuStorage,
    layout: &Layout,
    owner: &Tensor,
) -> Result<Array> {
    let (start, dtype) = match storage {
        CpuStorage::F64(values) => (values.as_ptr().cast::<u8>(), DType::F64),
        CpuStorage::F32(values) => (values.as_ptr().cast::<u8>(), DType::F32),
        CpuStorage::BF16(values) => (values.as_ptr().cast::<u8>(), DType::BF16),
        CpuStorage::F16(values) => (values.as_ptr().cast::<u8>(), DType::F16),
        _ => {
            let Origin { operation, input } = origin;
            let (shape, dtype): (Shape, CandleDType) = (layout.shape().clone(), owner.dtype());
            return Err(Error::DType { operation, input, shape, dtype }.into());
        }
    };
    let first = start.expose_provenance() + layout.start_offset() * dtype.size();
    let borrowed = Borrowed {
        address: first as u64,
        dtype,
        shape: layout.dims(),
        strides: layout.stride(),
        owner: Box::new(owner.clone()),
        is_known: true,
    };
    // SAFETY: candle's layout reaches elements of the storage alone, which the tensor keeps where they are. They are read only
    // during a call, while candle holds the storage's lock, and later, where the array was saved for the backward pass, under
    // the lock that the backward pass takes.
    unsafe { Array::borrow(borrowed, &Device::Cpu) }.map_err(CandleError::wrap)
}

/// What is done with arrays over tensors.
type Work<'a> = &'a mut dyn FnMut(&[Array]) -> Result<()>;

/// Runs `work` on arrays over `tensors`, all of whose storages are locked against writing meanwhile.
///
/// [`Tensor::storage_and_layout`] waits where a writer waits, so that two calls for views of one storage could wait for each
/// other; custom operations of candle are given storages whose lock is taken recursively. Hence one within another, for each
/// tensor.
pub(crate) fn with_arrays(operation: &'static str, tensors: &[&Tensor], work: Work<'_>) -> Result<()> {
    let Some(first) = tensors.first() else { return work(&[]) };
    let arrays = RefCell::new(Vec::with_capacity(tensors.len()));
    first.apply_op1_no_bwd(&Nested { operation, tensors, arrays: &arrays, work: &RefCell::new(work) })?;
    Ok(())
}

/// A custom operation that notes the array over its input, and applies itself to the next one.
struct Nested<'a, 'w> {
    operation: &'static str,
    tensors: &'a [&'a Tensor],
    arrays: &'a RefCell<Vec<Array>>,
    work: &'a RefCell<Work<'w>>,
}

impl Nested<'_, '_> {
    fn origin(&self) -> Origin {
        Origin { operation: self.operation, input: self.arrays.borrow().len() }
    }

    fn next(&self, array: Array) -> Result<()> {
        self.arrays.borrow_mut().push(array);
        let seen = self.arrays.borrow().len();
        match self.tensors.get(seen) {
            Some(tensor) => tensor.apply_op1_no_bwd(self).map(drop),
            None => {
                let arrays = self.arrays.take();
                (*self.work.borrow_mut())(&arrays)
            }
        }
    }
}

impl CustomOp1 for Nested<'_, '_> {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let origin = self.origin();
        let tensor = self.tensors[origin.input];
        self.next(on_host(origin, storage, layout, tensor)?)?;
        // A result that nobody looks at.
        Ok((CpuStorage::U8(Vec::new()), Shape::from(0)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let origin = self.origin();
        let gpu = crate::gpu::Gpu::new(&storage.device)?;
        self.next(gpu.array(origin, storage, layout, self.tensors[origin.input])?)?;
        // A result that nobody looks at.
        Ok((gpu.nothing()?, Shape::from(0)))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Err(self.origin().elsewhere(self.tensors[self.origin().input].device().location()))
    }

    fn metal_fwd(&self, _: &MetalStorage, _: &Layout) -> Result<(MetalStorage, Shape)> {
        Err(self.origin().elsewhere(self.tensors[self.origin().input].device().location()))
    }
}
