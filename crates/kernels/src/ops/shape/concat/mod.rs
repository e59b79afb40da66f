//! Joining arrays along an axis.

use crate::{
    Array, Device, Error, Result,
    array::{copy, require_axis},
    cpu::element::with_storage,
    runtime::memory::within_operator,
};
use gradewise_core::Shape;

/// The arrays one after the other along `axis`; all other sizes agree. Every element is copied once, from views too.
///
/// # Errors
/// If there is no array, a shape does not fit the first one's, or dtypes or devices differ.
pub fn concat(arrays: &[&Array], axis: usize) -> Result<Array> {
    const NAME: &str = "concat";
    let [first, ..] = arrays else {
        return Err(Error::Argument {
            operation: NAME,
            argument: "arrays",
            actual: "empty".to_owned(),
            expected: "at least one array",
        });
    };
    require_axis(NAME, axis, first.shape())?;
    let mut sizes = first.dims().to_vec();
    sizes[axis] = 0;
    for array in arrays {
        array.require_like(first, NAME, "arrays")?;
        let mut expected = first.dims().to_vec();
        if let Some(&size) = array.dims().get(axis) {
            expected[axis] = size;
        }
        array.require_shape(NAME, "arrays", &expected, || {
            format!("all sizes but that of axis {axis} are those of the first array, {}", first.shape())
        })?;
        sizes[axis] += array.dims()[axis];
    }
    let shape = Shape::from(sizes);
    let mut start = 0;
    let places = arrays.iter().map(|&array| {
        start += array.dims()[axis];
        (array, start - array.dims()[axis])
    });
    let places: Vec<_> = places.collect();
    if let Device::Cuda(device) = first.device() {
        let strides = shape.contiguous_strides();
        let out = Array::for_kernel(NAME, &shape, first.dtype(), &device)?;
        if places.len() <= copy::cuda::JOINED {
            copy::cuda::join(&device, NAME, &out, axis, &places)?;
            return Ok(out);
        }
        for (array, start) in places {
            let address = out.cuda_address() + (start * strides[axis] * first.dtype().size()) as u64;
            // SAFETY: all sizes but that along the axis were compared; `out` is new and has room for the array from there on.
            unsafe { copy::cuda::into(&device, NAME, array, (address, &strides))? };
        }
        return Ok(out);
    }
    let _account = within_operator(NAME);
    with_storage!(first.dtype(), T => copy::join::<T>(NAME, &shape, axis, &places))
}

/// Arrays of one shape along a new axis before `axis`, which may be the rank.
///
/// # Errors
/// As [`concat()`]; if `axis` is greater than the rank.
pub fn stack(arrays: &[&Array], axis: usize) -> Result<Array> {
    let unsqueezed = arrays.iter().map(|array| array.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    concat(&unsqueezed.iter().collect::<Vec<_>>(), axis)
}
