//! Cumulative sums.

mod cuda;

use crate::{
    Array, Device, Element, Result,
    array::require_axis,
    cpu::{element::with_element, split},
};

/// The sum of each element and those before it along `axis`; of those after it instead, if `reverse`. Runs in double precision.
///
/// # Errors
/// An axis out of range.
pub fn cumsum(x: &Array, axis: usize, reverse: bool) -> Result<Array> {
    const NAME: &str = "cumsum";
    require_axis(NAME, axis, x.shape())?;
    let last = x.rank() - 1;
    if axis != last {
        return cumsum(&x.transpose(axis, last)?, last, reverse)?.transpose(axis, last)?.contiguous();
    }
    let columns = x.dims()[last];
    let source = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return cuda::run(&device, NAME, &source, reverse);
    }
    with_element!(x.dtype(), NAME, T => {
        let source = source.as_slice::<T>()?;
        Array::build(x.shape(), &Device::Cpu, |out: &mut [T]| {
            split::for_chunks(out, split::rows_per_chunk(columns) * columns, |start, out| {
                let rows = out.chunks_exact_mut(columns.max(1)).zip(source[start..].chunks_exact(columns.max(1)));
                for (out, x) in rows {
                    let pairs = out.iter_mut().zip(x);
                    if reverse { accumulate(pairs.rev()) } else { accumulate(pairs) }
                }
            });
        })
    })
}

fn accumulate<'a, T: Element>(pairs: impl Iterator<Item = (&'a mut T, &'a T)>) {
    let mut total = 0.0;
    for (out, x) in pairs {
        total += x.widen();
        *out = T::narrow(total);
    }
}
