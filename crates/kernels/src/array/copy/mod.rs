//! Strided copies: from a view to adjacent elements or into a part of another array.

mod cpu;
pub(crate) mod cuda;
mod join;

pub(crate) use cpu::copy_into;
pub(crate) use join::join;

use super::{
    elementwise::{self, Operator, Row},
    lazy::{Reads, is_recording},
};
use crate::{Array, Device, Element, Result, cpu::element::with_storage, runtime::memory::within_operator};
use cpu::copy_row;
use std::marker::PhantomData;

/// A contiguous copy of a view, in storage of its own.
pub(crate) fn contiguous(array: &Array) -> Result<Array> {
    // A transposed view of what is in memory is copied tile by tile.
    if is_recording() && array.is_local(Reads::Same) {
        return with_storage!(array.dtype(), T => {
            elementwise::map_exact(NAME, array.shape(), [array], Identity::<T>(PhantomData))
        });
    }
    own(array)
}

const NAME: &str = "contiguous";

/// As [`contiguous`], made at once on the host.
pub(crate) fn own(array: &Array) -> Result<Array> {
    if let Device::Cuda(device) = array.device() {
        return cuda::contiguous(&device, array);
    }
    let _account = within_operator(NAME);
    with_storage!(array.dtype(), T => {
        let source = array.strided_slice::<T>(NAME)?;
        let strides = array.shape().contiguous_strides();
        Array::build(array.shape(), &array.device(), |out: &mut [T]| {
            copy_into(array.dims(), source, (out, &strides));
        })
    })
}

/// The operand itself.
struct Identity<T>(PhantomData<T>);

impl<T: Element> Operator<1> for Identity<T> {
    type In = T;
    type Out = T;
    type Row<'a> = Copied<'a, T>;

    fn rows<'a>(&'a self, [source]: [&'a [T]; 1], [step]: [usize; 1]) -> Copied<'a, T> {
        Copied { source, step }
    }
}

struct Copied<'a, T> {
    source: &'a [T],
    step: usize,
}

impl<T: Element> Row<T, 1> for Copied<'_, T> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [offset]: [usize; 1], first: usize, out: &mut [T]) {
        let length = out.len();
        copy_row(&self.source[offset + first * self.step..], self.step, out, 1, length);
    }
}
