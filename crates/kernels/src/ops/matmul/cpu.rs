//! Matrix products on the CPU.

use super::Matrices;
use crate::cpu::{
    gemm::{self, Matrix},
    parallel::Flushed,
    simd::Real,
};
use rayon::prelude::*;

pub(super) fn product<T: Real>(out: &mut [T], a: &[T], left: &Matrices, b: &[T], right: &Matrices) {
    let ((m, k), (_, n)) = (left.sizes(), right.sizes());
    if m * n == 0 {
        return;
    }
    // Rows per task: a function of the sizes alone, so that results do not depend on the number of threads.
    const FLOPS: usize = 1 << 21;
    let rows = (FLOPS / (k * n).max(1)).clamp(32, 4096).min(m);
    let task = |matrix: usize, piece: usize, out: &mut [T]| {
        let first = piece * rows;
        let (a, b) = (&a[left.starts[matrix]..], &b[right.starts[matrix]..]);
        let a = if left.transpose {
            Matrix::rows(&a[first.min(a.len())..], left.columns).transposed()
        } else {
            Matrix::rows(&a[first * k..], left.columns)
        };
        let b = Matrix::rows(b, right.columns);
        let b = if right.transpose { b.transposed() } else { b };
        gemm::product(gemm::Sizes { m: out.len() / n, k, n }, a, b, out, false);
    };
    const SEQUENTIAL: usize = 1 << 16;
    if out.len().saturating_mul(k) < SEQUENTIAL {
        for (matrix, out) in out.chunks_mut(m * n).enumerate() {
            out.chunks_mut(rows * n).enumerate().for_each(|(piece, out)| task(matrix, piece, out));
        }
    } else {
        out.par_chunks_mut(m * n).enumerate().flushed_for_each(|(matrix, out)| {
            out.par_chunks_mut(rows * n)
                .enumerate()
                .flushed_for_each(|(piece, out)| task(matrix, piece, out));
        });
    }
}
