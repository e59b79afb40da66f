//! Strided copies: from a view to adjacent elements or into a part of another array.

mod cpu;
pub(crate) mod cuda;

pub(crate) use cpu::copy_into;

use crate::{Array, Device, Element, Result, cpu::element::with_storage, runtime::memory::within_operator};

/// A contiguous copy of a view, in storage of its own.
pub(crate) fn contiguous(array: &Array) -> Result<Array> {
    if let Device::Cuda(device) = array.device() {
        return cuda::contiguous(&device, array);
    }
    const NAME: &str = "contiguous";
    let _account = within_operator(NAME);
    with_storage!(array.dtype(), T => {
        let source = view::<T>(array, NAME)?;
        let strides = array.shape().contiguous_strides();
        Array::build(array.shape(), &array.device(), |out: &mut [T]| {
            copy_into(array.dims(), source, (out, &strides));
        })
    })
}

/// A view's storage from its first element on, and its strides.
pub(crate) fn view<'a, T: Element>(
    array: &'a Array,
    operation: &'static str,
) -> Result<(&'a [T], &'a [usize])> {
    let storage = array.storage_slice::<T>(operation)?;
    // An empty view may lie at the end of its storage.
    Ok((&storage[array.offset().min(storage.len())..], array.strides()))
}
