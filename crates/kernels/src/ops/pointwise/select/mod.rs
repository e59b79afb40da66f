//! Choosing between two arrays, element by element.

use crate::{
    Array, Device, Element, Result,
    array::{copy::view, layout::collapse, strided::elementwise},
    cpu::element::with_element,
    ops::pointwise::rows::{Row, for_rows},
    runtime::cuda::{Kernel, fuse::Function},
};

/// `a` where `mask` is not 0 (NaN is not), `b` elsewhere; all three broadcast together.
///
/// The value not chosen does not affect the result, not even if it is NaN.
///
/// # Errors
/// If the shapes cannot be broadcast together, or dtypes or devices differ.
pub fn select(mask: &Array, a: &Array, b: &Array) -> Result<Array> {
    const NAME: &str = "select";
    a.require_like(mask, NAME, "a")?;
    b.require_like(mask, NAME, "b")?;
    let shape = mask.shape().broadcast(&a.shape().broadcast(b.shape(), NAME)?, NAME)?;
    let [mask, a, b] = [mask.broadcast_to(&shape)?, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?];
    if let Device::Cuda(device) = a.device() {
        let out = Array::for_kernel(NAME, &shape, a.dtype(), &device)?;
        let kernel = Kernel::new("select", a.dtype());
        let describe = || out.described(Function::Choose, &[&mask, &a, &b]);
        // SAFETY: all three have one dtype and device, and were broadcast to the shape of `out`, which is new.
        unsafe { elementwise(&device, NAME, kernel, &out, [&mask, &a, &b], |args| args, describe)? };
        return Ok(out);
    }
    let own = shape.contiguous_strides();
    let (sizes, [m, s, t, _]) = collapse(&shape, [mask.strides(), a.strides(), b.strides(), &own]);
    with_element!(a.dtype(), NAME, T => {
        let steps = [&m, &s, &t].map(|strides| strides.last().copied().unwrap_or(0));
        let choice = Choice { mask: view::<T>(&mask, NAME)?.0, a: view(&a, NAME)?.0, b: view(&b, NAME)?.0, steps };
        Array::build(&shape, &a.device(), |out: &mut [T]| for_rows(&sizes, [&m, &s, &t], &choice, out))
    })
}

struct Choice<'a, T> {
    mask: &'a [T],
    a: &'a [T],
    b: &'a [T],
    steps: [usize; 3],
}

impl<T: Element> Row<T, 3> for Choice<'_, T> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [mask, a, b]: [usize; 3], first: usize, out: &mut [T]) {
        let [m, s, t] = self.steps;
        let mask = &self.mask[mask + first * m..];
        let (a, b) = (&self.a[a + first * s..], &self.b[b + first * t..]);
        if self.steps == [1; 3] {
            let length = out.len();
            let sides = a[..length].iter().zip(&b[..length]);
            for ((out, &mask), (&a, &b)) in out.iter_mut().zip(&mask[..length]).zip(sides) {
                *out = if mask != T::zero() { a } else { b };
            }
        } else {
            for (column, out) in out.iter_mut().enumerate() {
                *out = if mask[column * m] != T::zero() { a[column * s] } else { b[column * t] };
            }
        }
    }
}
