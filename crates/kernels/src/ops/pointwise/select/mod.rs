//! Choosing between two arrays, element by element.

use crate::{
    Array, Device, Element, Result,
    array::{
        elementwise::{Operator, Row, map},
        strided::elementwise,
    },
    cpu::element::with_element,
    runtime::cuda::{Kernel, fuse::Function},
};
use std::marker::PhantomData;

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
    with_element!(a.dtype(), NAME, T => map(NAME, &shape, [&mask, &a, &b], Choose::<T>(PhantomData)))
}

/// The second operand where the first is not 0, else the third.
struct Choose<T>(PhantomData<T>);

impl<T: Element> Operator<3> for Choose<T> {
    type In = T;
    type Out = T;
    type Row<'a> = Choice<'a, T>;

    fn rows<'a>(&'a self, [mask, a, b]: [&'a [T]; 3], steps: [usize; 3]) -> Choice<'a, T> {
        Choice { mask, a, b, steps }
    }
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
