//! Elementwise functions of one array on the host.

use super::{Function, Number};
use crate::ops::pointwise::rows::{Row, for_rows};

/// Writes `function` of the elements of a view, its axes merged, to `out`.
pub(super) fn run<T: Number>(
    sizes: &[usize],
    source: &[T],
    strides: &[usize],
    function: &impl Function,
    out: &mut [T],
) {
    let step = strides.last().copied().unwrap_or(0);
    for_rows(sizes, [strides], &Map { source, step, function }, out);
}

struct Map<'a, T, F> {
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
