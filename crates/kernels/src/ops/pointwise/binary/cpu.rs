//! Elementwise functions of two arrays on the host.

use super::Function;
use crate::{
    Element,
    array::elementwise::{Operator, Row, for_rows},
};
use std::marker::PhantomData;

/// A function of the elements of two arrays.
pub(super) struct Apply<T, F>(PhantomData<T>, F);

impl<T: Element, F: Function> Apply<T, F> {
    pub fn new(function: F) -> Self {
        Self(PhantomData, function)
    }
}

impl<T: Element, F: Function> Operator<2> for Apply<T, F> {
    type In = T;
    type Out = T;
    type Row<'a> = Map<'a, T, F>;

    fn rows<'a>(&'a self, [left, right]: [&'a [T]; 2], steps: [usize; 2]) -> Map<'a, T, F> {
        Map { left, right, steps, function: &self.1 }
    }
}

pub(super) struct Map<'a, T, F> {
    left: &'a [T],
    right: &'a [T],
    steps: [usize; 2],
    function: &'a F,
}

impl<T: Element, F: Function> Row<T, 2> for Map<'_, T, F> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [left, right]: [usize; 2], first: usize, out: &mut [T]) {
        let [left_step, right_step] = self.steps;
        let (a, b) = (&self.left[left + first * left_step..], &self.right[right + first * right_step..]);
        let (function, length) = (self.function, out.len());
        match self.steps {
            [1, 1] => {
                for ((out, &a), &b) in out.iter_mut().zip(&a[..length]).zip(&b[..length]) {
                    *out = function.call(a, b);
                }
            }
            [1, 0] => {
                let b = b[0];
                for (out, &a) in out.iter_mut().zip(&a[..length]) {
                    *out = function.call(a, b);
                }
            }
            [0, 1] => {
                let a = a[0];
                for (out, &b) in out.iter_mut().zip(&b[..length]) {
                    *out = function.call(a, b);
                }
            }
            _ => {
                for (column, out) in out.iter_mut().enumerate() {
                    *out = function.call(a[column * left_step], b[column * right_step]);
                }
            }
        }
    }
}

/// `out += right`.
pub(super) fn accumulate<T: Element>(sizes: &[usize], right: &[T], strides: &[usize], out: &mut [T]) {
    let step = strides.last().copied().unwrap_or(0);
    for_rows(sizes, [strides], &Accumulate { right, step }, out);
}

struct Accumulate<'a, T> {
    right: &'a [T],
    step: usize,
}

impl<T: Element> Row<T, 1> for Accumulate<'_, T> {
    #[inline(always)]
    fn row<const FMA: bool>(&self, [offset]: [usize; 1], first: usize, out: &mut [T]) {
        let right = &self.right[offset + first * self.step..];
        if self.step == 1 {
            let length = out.len();
            for (out, &b) in out.iter_mut().zip(&right[..length]) {
                *out += b;
            }
        } else {
            for (column, out) in out.iter_mut().enumerate() {
                *out += right[column * self.step];
            }
        }
    }
}
