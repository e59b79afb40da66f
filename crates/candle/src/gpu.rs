//! Tensors on CUDA devices: borrowed where candle has them, results in candle's memory, work in candle's stream.

use crate::{Error, error::Origin, target::Target};
use candle_core::{
    CudaDevice, CudaStorage, DeviceLocation, Error as CandleError, Layout, Result as CandleResult, Storage,
    Tensor,
    backend::BackendDevice,
    cuda_backend::{
        CudaDType, CudaStorageSlice,
        cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr},
    },
};
use gradewise_core::DType;
use gradewise_ffi::sys::CUstream;
use gradewise_kernels::{
    Array, Borrowed, CudaDevice as OurDevice, Device,
    external::{Allocation, AllocationError, Allocator, Place, with_allocator},
};
use half::{bf16, f16};
use std::sync::{Arc, Mutex, PoisonError};

/// A CUDA device of candle, as one of ours, and the stream that candle queues its work in.
pub(crate) struct Gpu {
    theirs: CudaDevice,
    ours: OurDevice,
    stream: Arc<CudaStream>,
}

/// Memory of a result, until it is a storage.
struct Memory(Mutex<Option<CudaStorage>>);

/// Hands out memory of candle's with elements of a dtype.
struct Slices {
    device: CudaDevice,
    dtype: DType,
}

/// A slice as a storage.
pub(crate) struct Slice(pub CudaStorage);

impl From<Slice> for Storage {
    fn from(Slice(storage): Slice) -> Self {
        Self::Cuda(storage)
    }
}

/// Where a slice begins, ordered behind what `cudarc` has queued for it in other streams.
fn start<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

/// Memory of candle's with room for `bytes`, and where it begins.
fn room<T: DeviceRepr + CudaDType>(device: &CudaDevice, bytes: usize) -> CandleResult<(u64, CudaStorage)> {
    // SAFETY: operators write a result before anything reads it.
    let slice = unsafe { device.alloc::<T>(bytes.div_ceil(size_of::<T>())) }?;
    let address = start(&slice, &device.cuda_stream());
    Ok((address, CudaStorage::wrap_cuda_slice(slice, device.clone())))
}

// SAFETY: each allocation is a slice of its own with room for as many bytes, which its owner keeps; the driver's allocations
// begin at multiples of 256, and candle frees them in the order of the stream that operators run in.
unsafe impl Allocator for Slices {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        if place == Place::Host {
            return Err("memory on the host was asked for in an operation on a device".into());
        }
        let (address, storage) = match self.dtype {
            DType::F64 => room::<f64>(&self.device, bytes),
            DType::F32 => room::<f32>(&self.device, bytes),
            DType::BF16 => room::<bf16>(&self.device, bytes),
            DType::F16 => room::<f16>(&self.device, bytes),
        }?;
        Ok(Allocation { address, owner: Box::new(Memory(Mutex::new(Some(storage)))) })
    }
}

impl Gpu {
    /// The device of candle's, opened here once for each device.
    pub fn new(theirs: &CudaDevice) -> CandleResult<Self> {
        let DeviceLocation::Cuda { gpu_id } = theirs.location() else {
            return Err(Error::Device {
                operation: "open device",
                input: 0,
                device: theirs.location(),
                served: crate::error::SERVED,
            }
            .into());
        };
        let ours = OurDevice::new(gpu_id).map_err(CandleError::wrap)?;
        Ok(Self { theirs: theirs.clone(), ours, stream: theirs.cuda_stream() })
    }

    /// The array over a tensor's values. `owner` is the tensor: the array keeps it.
    pub fn array(
        &self,
        origin: Origin,
        storage: &CudaStorage,
        layout: &Layout,
        owner: &Tensor,
    ) -> CandleResult<Array> {
        let stream = &self.stream;
        let (start, dtype) = match &storage.slice {
            CudaStorageSlice::F64(values) => (start(values, stream), DType::F64),
            CudaStorageSlice::F32(values) => (start(values, stream), DType::F32),
            CudaStorageSlice::BF16(values) => (start(values, stream), DType::BF16),
            CudaStorageSlice::F16(values) => (start(values, stream), DType::F16),
            _ => {
                let Origin { operation, input } = origin;
                let (shape, dtype) = (layout.shape().clone(), owner.dtype());
                return Err(Error::DType { operation, input, shape, dtype }.into());
            }
        };
        let borrowed = Borrowed {
            address: start + (layout.start_offset() * dtype.size()) as u64,
            dtype,
            shape: layout.dims(),
            strides: layout.stride(),
            owner: Box::new(owner.clone()),
            is_known: true,
        };
        // SAFETY: candle's layout reaches elements of the storage alone, which the tensor keeps where they are; candle queued
        // what writes them in the stream that operators run in.
        unsafe { Array::borrow(borrowed, &Device::Cuda(self.ours.clone())) }.map_err(CandleError::wrap)
    }

    /// A storage without elements to speak of.
    pub fn nothing(&self) -> CandleResult<CudaStorage> {
        Ok(CudaStorage::wrap_cuda_slice(self.theirs.alloc_zeros::<u8>(1)?, self.theirs.clone()))
    }

    /// The slice that an array which nothing else shares is all of. The array must not be read any more.
    fn taken(array: &Array) -> Option<CudaStorage> {
        let memory = array.owner()?.downcast_ref::<Memory>()?;
        let bytes = array.elements() * array.dtype().size();
        if !(array.is_unique() && array.is_contiguous() && array.storage_offset() == 0)
            || array.storage_bytes() != bytes
        {
            return None;
        }
        let mut place = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of another dtype than the slice if it is that of a workspace; the slice stays where it is.
        let elements = match (array.dtype(), &place.as_ref()?.slice) {
            (DType::F64, CudaStorageSlice::F64(slice)) => slice.len(),
            (DType::F32, CudaStorageSlice::F32(slice)) => slice.len(),
            (DType::BF16, CudaStorageSlice::BF16(slice)) => slice.len(),
            (DType::F16, CudaStorageSlice::F16(slice)) => slice.len(),
            _ => return None,
        };
        if elements == array.elements() { place.take() } else { None }
    }

    /// A copy of a result in memory of candle's, by way of an operator that writes all of it.
    fn copied(&self, array: &Array) -> CandleResult<Slice> {
        let refused = || {
            let device = self.theirs.location();
            Error::Device { operation: "copy", input: 0, device, served: crate::error::SERVED }.into()
        };
        let copy = self.run(array.dtype(), || array.copy())?.map_err(CandleError::wrap)?;
        Self::taken(&copy).map(Slice).ok_or_else(refused)
    }
}

impl Target for Gpu {
    type Storage = Slice;

    fn run<R>(&self, dtype: DType, work: impl FnOnce() -> R) -> CandleResult<R> {
        let slices = Arc::new(Slices { device: self.theirs.clone(), dtype });
        let stream = CUstream(self.stream.cu_stream().cast());
        // SAFETY: a stream of the device's primary context, which candle's device keeps, as do the tensors and slices that own
        // the memory of all arrays.
        unsafe { self.ours.on_stream(stream, || with_allocator(slices, work)) }.map_err(CandleError::wrap)
    }

    fn storage(&self, array: Array) -> CandleResult<Slice> {
        if array.elements() == 0 {
            // The driver has no memory of no bytes.
            let (_, storage) = match array.dtype() {
                DType::F64 => room::<f64>(&self.theirs, 1),
                DType::F32 => room::<f32>(&self.theirs, 1),
                DType::BF16 => room::<bf16>(&self.theirs, 1),
                DType::F16 => room::<f16>(&self.theirs, 1),
            }?;
            return Ok(Slice(storage));
        }
        match Self::taken(&array) {
            Some(storage) => Ok(Slice(storage)),
            None => self.copied(&array),
        }
    }
}
