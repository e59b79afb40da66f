//! Elementwise work on strided views, row by row: divided among threads, compiled for the instruction set.

use crate::{
    array::layout::Walk,
    cpu::{
        simd::{Kernel, Simd, dispatch},
        split,
    },
};

/// What is done to one row of the result. Implementations are `#[inline(always)]`.
pub(crate) trait Row<T, const N: usize>: Sync {
    /// Writes part of a row, from column `first` on; `offsets` is where the row begins in each operand.
    fn row<const FMA: bool>(&self, offsets: [usize; N], first: usize, out: &mut [T]);
}

/// Runs `row` on every row of the contiguous `out`. `sizes` and the operands' `strides` have their axes merged.
pub(crate) fn for_rows<T: Send, const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    row: &impl Row<T, N>,
    out: &mut [T],
) {
    let Some((&columns, outer)) = sizes.split_last() else {
        return dispatch(Rows {
            walk: Walk { sizes, strides },
            start: 0,
            columns: out.len(),
            first: 0,
            row,
            out,
        });
    };
    if outer.is_empty() {
        split::for_chunks(out, split::CHUNK, |first, out| {
            dispatch(Rows {
                walk: Walk { sizes: outer, strides },
                start: 0,
                columns: out.len(),
                first,
                row,
                out,
            });
        });
    } else {
        split::for_chunks(out, split::rows_per_chunk(columns) * columns, |start, out| {
            dispatch(Rows {
                walk: Walk { sizes: outer, strides },
                start: start / columns,
                columns,
                first: 0,
                row,
                out,
            });
        });
    }
}

struct Rows<'a, T, R, const N: usize> {
    walk: Walk<'a, N>,
    start: usize,
    columns: usize,
    first: usize,
    row: &'a R,
    out: &'a mut [T],
}

impl<T, R: Row<T, N>, const N: usize> Kernel for Rows<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        if self.columns == 0 {
            return;
        }
        for (out, offsets) in self.out.chunks_exact_mut(self.columns).zip(self.walk.offsets(self.start)) {
            self.row.row::<FMA>(offsets, self.first, out);
        }
    }
}
