//! Elementwise functions of one array on the host.

use super::{Function, Number};
use crate::{
    ops::{copy::Walk, split},
    simd::{Kernel, dispatch},
};

/// Writes `function` of the elements of a view, its axes merged, to `out`.
pub(super) fn run<T: Number>(
    sizes: &[usize],
    (source, strides): (&[T], &[usize]),
    function: &impl Function,
    out: &mut [T],
) {
    let (columns, outer) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
    let step = strides.last().copied().unwrap_or(1);
    if outer.is_empty() {
        split::for_chunks(out, split::CHUNK, |start, out| {
            dispatch(Rows {
                walk: Walk { sizes: &[], strides: [&[]] },
                start: 0,
                columns: out.len(),
                step,
                source: &source[start * step..],
                function,
                out,
            });
        });
    } else {
        let rows = split::rows_per_chunk(columns);
        split::for_chunks(out, rows * columns, |start, out| {
            let walk = Walk { sizes: outer, strides: [strides] };
            dispatch(Rows { walk, start: start / columns, columns, step, source, function, out });
        });
    }
}

/// Rows of `columns` elements, `step` apart, from row `start` on.
struct Rows<'a, T, F> {
    walk: Walk<'a, 1>,
    start: usize,
    columns: usize,
    step: usize,
    source: &'a [T],
    function: &'a F,
    out: &'a mut [T],
}

impl<T: Number, F: Function> Kernel for Rows<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if self.out.is_empty() {
            return;
        }
        let mut rows = self.out.chunks_exact_mut(self.columns);
        self.walk.visit(self.start, rows.len(), |[offset]| {
            let Some(row) = rows.next() else { return };
            let source = &self.source[offset..];
            if self.step == 1 {
                for (out, &x) in row.iter_mut().zip(&source[..self.columns]) {
                    *out = self.function.call::<T, FMA>(x);
                }
            } else {
                for (column, out) in row.iter_mut().enumerate() {
                    *out = self.function.call::<T, FMA>(source[column * self.step]);
                }
            }
        });
    }
}
