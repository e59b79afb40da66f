//! Padding with zeros.

use crate::{
    Array, Device, Error, Result,
    array::{copy, require_axis},
    cpu::element::with_storage,
    runtime::memory::within_operator,
};
use gradewise_core::Shape;

/// Zeros of size `size` along `axis` with `x` at positions `start..`: the transpose of [`Array::slice`].
///
/// # Errors
/// If the axis is out of range or `x` does not fit at `start`.
pub fn pad(x: &Array, axis: usize, start: usize, size: usize) -> Result<Array> {
    const NAME: &str = "pad";
    require_axis(NAME, axis, x.shape())?;
    let end = start.saturating_add(x.dims()[axis]);
    let mut sizes = x.dims().to_vec();
    sizes[axis] = size;
    let shape = Shape::from(sizes);
    if end > size {
        return Err(Error::Range { operation: NAME, start, end, axis, shape });
    }
    if let Device::Cuda(device) = x.device() {
        let out = Array::for_kernel(NAME, &shape, x.dtype(), &device)?;
        copy::cuda::join(&device, NAME, &out, axis, &[(x, start)])?;
        return Ok(out);
    }
    let _account = within_operator(NAME);
    with_storage!(x.dtype(), T => copy::join::<T>(NAME, &shape, axis, &[(x, start)]))
}
