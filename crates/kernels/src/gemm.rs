//! Safe entry to the `gemm` crate: strided matrix products on one thread.
//!
//! Parallelism is the caller's: operators split their rows into fixed chunks, so that the order of every sum, and so
//! every bit of the result, is independent of the number of threads.

use crate::simd::Real;

/// A matrix inside a slice: element (r, c) is `data[r·row_stride + c·column_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    data: &'a [T],
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A row-major matrix with rows of `columns` elements.
    pub fn rows(data: &'a [T], columns: usize) -> Self {
        Self { data, row_stride: columns, column_stride: 1 }
    }

    /// The transpose.
    pub fn transposed(self) -> Self {
        Self { data: self.data, row_stride: self.column_stride, column_stride: self.row_stride }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.row_stride + (columns - 1) * self.column_stride < self.data.len()
    }
}

/// Sizes of a product: `[m, k]` times `[k, n]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// `out = a·b`, or `out += a·b` with `add`; `a` is `[m, k]`, `b` is `[k, n]`, `out` is row-major `[m, n]`.
///
/// # Panics
/// If a slice is shorter than its sizes say: a bug of the calling operator, which has validated its shapes.
pub(crate) fn product<T: Real>(sizes: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>, out: &mut [T], add: bool) {
    let Sizes { m, k, n } = sizes;
    assert!(a.holds(m, k) && b.holds(k, n) && out.len() >= m * n, "matrix product outside its slices");
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !add {
            out[..m * n].fill(T::zero());
        }
        return;
    }
    // A small product costs as little in double precision, and what follows it may be ill conditioned (an indefinite
    // norm near zero magnifies every rounding).
    const SMALL: usize = 1 << 14;
    if m * k * n <= SMALL {
        small(sizes, a, b, out, add);
        return;
    }
    // SAFETY: the assertion above bounds every element the strides reach; `out` is borrowed mutably and so does not
    // overlap `a` or `b`; f32 and f64 (the only `Real` types) are what the crate implements.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            add,
            a.data.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The product by its definition, summed in double precision.
fn small<T: Real>(sizes: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>, out: &mut [T], add: bool) {
    let Sizes { m, k, n } = sizes;
    for row in 0..m {
        for column in 0..n {
            let sum: f64 = (0..k)
                .map(|inner| {
                    let a = a.data[row * a.row_stride + inner * a.column_stride];
                    a.widen() * b.data[inner * b.row_stride + column * b.column_stride].widen()
                })
                .sum();
            let target = &mut out[row * n + column];
            *target = if add { *target + T::narrow(sum) } else { T::narrow(sum) };
        }
    }
}
