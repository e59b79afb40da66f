//! Conversion between dtypes.

use super::elementwise::{Operator, Row};
use crate::{
    Array, CudaDevice, DType, Element, Result,
    array::strided::elementwise,
    runtime::cuda::{Kernel, fuse::Function},
};
use std::marker::PhantomData;

/// The values of a view, rounded to nearest in `dtype`, which is another one.
pub(crate) fn cast(device: &CudaDevice, x: &Array, dtype: DType) -> Result<Array> {
    const NAME: &str = "cast";
    let from = match x.dtype() {
        DType::F16 => "cast_f16",
        DType::BF16 => "cast_bf16",
        DType::F32 => "cast_f32",
        DType::F64 => "cast_f64",
    };
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let describe = || out.described(Function::Cast, &[x]);
    // SAFETY: the kernel is that from the dtype of x to that of `out`, which is new and has the shape of x.
    unsafe { elementwise(device, NAME, Kernel::new(from, dtype), &out, [x], |args| args, describe)? };
    Ok(out)
}

/// Conversion of elements on the host.
#[derive(Default)]
pub(super) struct To<S, T>(PhantomData<(S, T)>);

impl<S: Element, T: Element> Operator<1> for To<S, T> {
    type In = S;
    type Out = T;
    type Row<'a> = Converted<'a, S>;

    fn rows<'a>(&'a self, [source]: [&'a [S]; 1], [step]: [usize; 1]) -> Converted<'a, S> {
        Converted { source, step }
    }
}

pub(super) struct Converted<'a, S> {
    source: &'a [S],
    step: usize,
}

impl<S: Element, T: Element> Row<T, 1> for Converted<'_, S> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [offset]: [usize; 1], first: usize, out: &mut [T]) {
        let source = &self.source[offset + first * self.step..];
        if self.step == 1 {
            let length = out.len();
            for (out, &value) in out.iter_mut().zip(&source[..length]) {
                *out = T::narrow(value.widen());
            }
        } else {
            for (column, out) in out.iter_mut().enumerate() {
                *out = T::narrow(source[column * self.step].widen());
            }
        }
    }
}
