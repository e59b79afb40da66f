//! Elementwise functions of one array on the host.

use super::{Function, Number};
use crate::array::elementwise::{Operator, Row};
use std::marker::PhantomData;

/// A function of the elements of an array.
pub(super) struct Apply<T, F>(PhantomData<T>, F);

impl<T: Number, F: Function> Apply<T, F> {
    pub fn new(function: F) -> Self {
        Self(PhantomData, function)
    }
}

impl<T: Number, F: Function> Operator<1> for Apply<T, F> {
    type In = T;
    type Out = T;
    type Row<'a> = Map<'a, T, F>;

    fn rows<'a>(&'a self, [source]: [&'a [T]; 1], [step]: [usize; 1]) -> Map<'a, T, F> {
        Map { source, step, function: &self.1 }
    }
}

pub(super) struct Map<'a, T, F> {
    source: &'a [T],
    step: usize,
    function: &'a F,
}

impl<T: Number, F: Function> Row<T, 1> for Map<'_, T, F> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [offset]: [usize; 1], first: usize, out: &mut [T]) {
        let source = &self.source[offset + first * self.step..];
        if self.step == 1 {
            let length = out.len();
            for (out, &x) in out.iter_mut().zip(&source[..length]) {
                *out = self.function.call::<T, FMA>(x);
            }
        } else {
            for (column, out) in out.iter_mut().enumerate() {
                *out = self.function.call::<T, FMA>(source[column * self.step]);
            }
        }
    }
}
