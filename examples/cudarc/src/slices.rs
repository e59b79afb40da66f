//! Slices of cudarc as arrays of gradewise, and back.

use cudarc::driver::{CudaSlice, CudaStream};
use gradewise_core::DType;
use gradewise_ffi::{DeviceMemory, cudarc as borrow};
use gradewise_kernels::{Array, Borrowed, CudaDevice, Device};
use std::{error::Error, sync::Arc};

/// An array over a slice in row-major order, without a copy. It keeps the slice, which is not to be written while it does:
/// `Arc::get_mut` sees to that.
pub fn shown(
    device: &CudaDevice,
    stream: &CudaStream,
    slice: &Arc<CudaSlice<f64>>,
    shape: &[usize],
) -> Result<Array, Box<dyn Error>> {
    let (address, bytes) = borrow::address(stream, slice);
    if bytes != shape.iter().product::<usize>() * size_of::<f64>() {
        return Err(format!("a slice of {} elements is no array of shape {shape:?}", slice.len()).into());
    }
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let owner = Box::new(Arc::clone(slice));
    let borrowed = Borrowed { address, dtype: DType::F64, shape, strides: &strides, owner, is_known: false };
    // SAFETY: the slice has as many elements, which the array's owner keeps where they are; nobody has a slice to write to while
    // it is shared; `stream`, in which operators are to run, waits for what cudarc queued for it.
    Ok(unsafe { Array::borrow(borrowed, &Device::Cuda(device.clone())) }?)
}

/// Runs operators in a stream of cudarc.
pub fn in_stream<R>(
    device: &CudaDevice,
    stream: &CudaStream,
    work: impl FnOnce() -> Result<R, Box<dyn Error>>,
) -> Result<R, Box<dyn Error>> {
    // SAFETY: cudarc's streams are of the device's primary context; the callers here keep theirs to the end.
    unsafe { device.on_stream(borrow::raw(stream), work) }?
}

/// Copies an array into a slice of as many elements, by cudarc: the array's memory is lent to it.
pub fn copy(
    device: &CudaDevice,
    stream: &Arc<CudaStream>,
    from: &Array,
    to: &mut CudaSlice<f64>,
) -> Result<(), Box<dyn Error>> {
    if !from.is_contiguous() || from.dtype() != DType::F64 || from.elements() != to.len() {
        return Err(format!("{from:?} does not fit a slice of {} elements in f64", to.len()).into());
    }
    let bytes = from.elements() * size_of::<f64>();
    // SAFETY: the stream is of the device's primary context and outlives both. The array has as many bytes in a row, holds floating-point
    // numbers, was written in this stream, and is freed in its order.
    unsafe {
        let ours = borrow::stream(device.context(), stream);
        let memory = DeviceMemory::borrow(&ours, from.address(), bytes);
        borrow::with_slice::<f64, _>(stream, &memory, |lent| stream.memcpy_dtod(lent, to))
    }?;
    Ok(())
}
