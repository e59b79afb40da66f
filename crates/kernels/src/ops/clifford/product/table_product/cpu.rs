//! Bilinear products given by a table, on the CPU.

use super::Table;
use crate::{
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, accumulate, dispatch, subtract_product},
    },
    ops::clifford::algebra::layout::{Layout, load, split_chunks, store},
};
use rayon::prelude::*;

/// `out[o] = Σ ±a[i]·b[k]`; `a`, `b` and `out` have `line` elements per blade.
pub(crate) fn forward<T: Real>(table: &Table, line: usize, a: &[T], b: &[T], out: &mut [T]) {
    // Positions per task: every operand's part of a block stays in cache while all terms read it.
    const BLOCK: usize = 1024;
    let layout = Layout { chunk: BLOCK, ..Layout::new(table.out, line, 1) };
    split_chunks(out, &layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        dispatch(Product { table, line, a, b, start: chunk * BLOCK, out: &mut out });
    });
}

/// [`LANES`] elements that begin where a cache line does.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned<T>(Lanes<T>);

struct Product<'a, 'b, T> {
    table: &'a Table,
    line: usize,
    a: &'a [T],
    b: &'a [T],
    start: usize,
    out: &'a mut [&'b mut [T]],
}

impl<T: Real> Kernel for Product<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { table, line, a, b, start, out } = self;
        let len = out.first().map_or(0, |out| out.len());
        // Each entry is read by many terms: once from where it is, which in memory of another library may be anywhere, and then
        // from whole cache lines.
        let mut tile = vec![Aligned([T::zero(); LANES]); table.a + table.b];
        for offset in (0..len).step_by(LANES) {
            let count = LANES.min(len - offset);
            let (left, right) = tile.split_at_mut(table.a);
            for (entries, data) in [(&mut *left, a), (&mut *right, b)] {
                for (entry, Aligned(lanes)) in entries.iter_mut().enumerate() {
                    *lanes = load(&data[entry * line + start + offset..][..count]);
                }
            }
            for (terms, out) in table.by_out.iter().zip(out.iter_mut()) {
                let mut sum = [T::zero(); LANES];
                for term in terms {
                    let (Aligned(a), Aligned(b)) = (&left[usize::from(term.a)], &right[usize::from(term.b)]);
                    if term.sign > 0 {
                        accumulate::<T, FMA>(&mut sum, a, b);
                    } else {
                        subtract_product::<T, FMA>(&mut sum, a, b);
                    }
                }
                store(&mut out[offset..offset + count], &sum);
            }
        }
    }
}
