//! Strided matrix products on one thread: those of narrow matrices here, others by the `gemm` crates for `f32` and `f64`.
//!
//! Parallelism is the caller's: operators split their rows into fixed chunks, so that the order of every sum, and so
//! every bit of the result, is independent of the number of threads.

use crate::cpu::simd::{Kernel, Real, Simd, dispatch};
use gemm_common::Parallelism;

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

    /// Copies the first `rows` rows, side by side, to `target`, which they fill. Column by column: fast where the elements of a column
    /// are adjacent.
    pub fn copy_to(self, rows: usize, target: &mut [T])
    where
        T: Copy,
    {
        let columns = target.len() / rows.max(1);
        for column in 0..columns {
            let source = self.data[column * self.column_stride..].iter().step_by(self.row_stride.max(1));
            for (target, &value) in target[column..].iter_mut().step_by(columns).zip(source) {
                *target = value;
            }
        }
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
    // What a layer of a few dozen features multiplies: `b` stays in cache as it is, and packing it would take longer than it saves.
    const NARROW: usize = 128;
    const DEEP: usize = 512;
    if n <= NARROW && k <= DEEP && b.column_stride == 1 {
        dispatch(Narrow { sizes, a, b: b.data, pitch: b.row_stride, out, add });
        return;
    }
    // The kernels want columns of `out` to be adjacent or longer than its rows: outᵀ = bᵀ·aᵀ.
    let (m, n, columns, rows, a, b) = match n {
        1 => (m, n, 1, 1, a, b),
        _ => (n, m, n, 1, b.transposed(), a.transposed()),
    };
    // SAFETY: the assertion above bounds every element the strides reach; `out` is borrowed mutably and so does not
    // overlap `a` or `b`.
    unsafe {
        T::gemm()(
            m,
            n,
            k,
            out.as_mut_ptr(),
            columns as isize,
            rows,
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
            Parallelism::None,
        );
    }
}

/// The product by its definition, summed in double precision, in the order of the inner index: every sum has the same bits whatever the
/// instruction set. A product of two `f32` is exact in `f64`, and one of two `f64` is rounded before it is added.
fn small<T: Real>(sizes: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>, out: &mut [T], add: bool) {
    if b.column_stride == 1 {
        dispatch(Small { sizes, a, b: b.data, pitch: b.row_stride, out, add });
        return;
    }
    // Elements of a row are adjacent in the copy, so that they fill vectors.
    let mut copy = vec![T::zero(); sizes.k * sizes.n];
    b.copy_to(sizes.k, &mut copy);
    dispatch(Small { sizes, a, b: &copy, pitch: sizes.n, out, add });
}

/// [`small`] with `b` `[k, pitch]`, of whose rows the first `n` elements count.
struct Small<'a, T> {
    sizes: Sizes,
    a: Matrix<'a, T>,
    b: &'a [T],
    pitch: usize,
    out: &'a mut [T],
    add: bool,
}

impl<T: Real> Kernel for Small<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(mut self, _: S) {
        let mut column = 0;
        while column + 16 <= self.sizes.n {
            self.columns::<16, FMA>(column);
            column += 16;
        }
        while column + 4 <= self.sizes.n {
            match self.sizes.n - column {
                8.. => {
                    self.columns::<8, FMA>(column);
                    column += 8;
                }
                _ => {
                    self.columns::<4, FMA>(column);
                    column += 4;
                }
            }
        }
        while column < self.sizes.n {
            self.columns::<1, FMA>(column);
            column += 1;
        }
    }
}

impl<T: Real> Small<'_, T> {
    /// All rows of `N` columns from `first` on.
    #[inline(always)]
    fn columns<const N: usize, const FMA: bool>(&mut self, first: usize) {
        // Rows that are summed at a time share what is read of `b`, and their additions do not wait for each other.
        const ROWS: usize = 4;
        let mut row = 0;
        while row + ROWS <= self.sizes.m {
            self.tile::<ROWS, N, FMA>(row, first);
            row += ROWS;
        }
        while row < self.sizes.m {
            self.tile::<1, N, FMA>(row, first);
            row += 1;
        }
    }

    /// `R` rows from `row` on, of `N` columns from `first` on.
    #[inline(always)]
    fn tile<const R: usize, const N: usize, const FMA: bool>(&mut self, row: usize, first: usize) {
        let Sizes { k, n, .. } = self.sizes;
        let mut sums = [[0.0f64; N]; R];
        for inner in 0..k {
            let line = &self.b[inner * self.pitch + first..][..N];
            let mut b = [0.0f64; N];
            b.iter_mut().zip(line).for_each(|(b, &value)| *b = value.widen());
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = self.a.data[(row + r) * self.a.row_stride + inner * self.a.column_stride].widen();
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    // The product of two `f32` is exact, so that fusing changes no bits; of two `f64` it would.
                    *sum = if FMA && size_of::<T>() == 4 { a.mul_add(b, *sum) } else { *sum + a * b };
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let target = &mut self.out[(row + r) * n + first..][..N];
            for (target, &sum) in target.iter_mut().zip(sums) {
                *target = if self.add { *target + T::narrow(sum) } else { T::narrow(sum) };
            }
        }
    }
}

/// The product of a narrow `b` `[k, n]` whose rows are `pitch` apart. Tiles of the result stay in vector registers over the whole inner
/// dimension, and sums are formed in its order, with the same bits for every instruction set that fuses multiply-add.
struct Narrow<'a, T> {
    sizes: Sizes,
    a: Matrix<'a, T>,
    b: &'a [T],
    pitch: usize,
    out: &'a mut [T],
    add: bool,
}

impl<T: Real> Kernel for Narrow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(mut self, simd: S) {
        let width = T::width::<S>();
        let n = self.sizes.n;
        if n < width {
            // Rows of a whole register, so that only the result's are shorter.
            let mut wide = vec![T::zero(); self.sizes.k * width];
            for (inner, line) in wide.chunks_exact_mut(width).enumerate() {
                line[..n].copy_from_slice(&self.b[inner * self.pitch..][..n]);
            }
            Narrow { b: &wide, pitch: width, ..self }.columns::<S, 1, false>(simd, 0, n);
            return;
        }
        // Two registers for each row, of which the last pair overlaps where the columns do not fill it: what both hold is computed twice, and
        // every load and store is a whole register. A pair needs more than one register of columns.
        let mut column = 0;
        while column < n {
            let rest = n - column;
            let leaves_a_pair = rest > 2 * width && rest <= 3 * width;
            let count = if leaves_a_pair { width } else { rest.min(2 * width) };
            if count == width {
                self.columns::<S, 1, true>(simd, column, count);
            } else {
                self.columns::<S, 2, true>(simd, column, count);
            }
            column += count;
        }
    }
}

impl<T: Real> Narrow<'_, T> {
    /// `count` columns, in `V` registers, of all rows. `WHOLE` says that the columns fill a register at least; where they do not, the rows of
    /// `b` do.
    #[inline(always)]
    fn columns<S: Simd, const V: usize, const WHOLE: bool>(&mut self, simd: S, column: usize, count: usize) {
        // As many sums as fit into registers beside the operands. A constant alone decides, so that the other tiles are not compiled.
        let rest = if Registers::<S>::MANY {
            let rest = self.rows::<S, 12, V, WHOLE>(simd, 0, column, count);
            self.rows::<S, 4, V, WHOLE>(simd, rest, column, count)
        } else {
            let rest = self.rows::<S, 6, V, WHOLE>(simd, 0, column, count);
            self.rows::<S, 2, V, WHOLE>(simd, rest, column, count)
        };
        self.rows::<S, 1, V, WHOLE>(simd, rest, column, count);
    }

    /// The result from `row` on, `R` rows at a time; returns the first row that is left.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const V: usize, const WHOLE: bool>(
        &mut self,
        simd: S,
        mut row: usize,
        column: usize,
        count: usize,
    ) -> usize {
        while row + R <= self.sizes.m {
            self.tile::<S, R, V, WHOLE>(simd, row, column, count);
            row += R;
        }
        row
    }

    /// Multiplies and stores the result's rows from `row` to `row + R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize, const WHOLE: bool>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
        count: usize,
    ) {
        let (a, k) = (self.a, self.sizes.k);
        assert!(row + R <= self.sizes.m && a.holds(row + R, k), "rows outside of their matrix");
        // Where the registers of a row begin.
        let mut places = [0; V];
        if V > 1 {
            places[V - 1] = count - T::width::<S>();
        }
        let mut sums = [[T::splat(simd, T::zero()); V]; R];
        // One text for every layout of `a`: checks of bounds here would cost as much as the products.
        let mut starts = [a.data.as_ptr(); R];
        for (r, start) in starts.iter_mut().enumerate() {
            // SAFETY: the matrix holds `row + R` rows (asserted above) of `k` elements, of which there is one at least (`product`).
            *start = unsafe { start.add((row + r) * a.row_stride) };
        }
        for inner in 0..k {
            let line = &self.b[inner * self.pitch + column..][..if WHOLE { count } else { T::width::<S>() }];
            let mut b = [T::splat(simd, T::zero()); V];
            for (&place, b) in places.iter().zip(&mut b) {
                *b = T::load_whole::<S>(&line[place..]);
            }
            for (start, sums) in starts.iter().zip(&mut sums) {
                // One element at a time: those of all rows together would take the registers of the sums.
                // SAFETY: `inner < k`, and the matrix holds `k` columns of each of these rows (asserted above).
                let a = T::splat(simd, unsafe { *start.add(inner * a.column_stride) });
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = T::multiply_add(simd, a, b, *sum);
                }
            }
        }
        for (r, mut sums) in sums.into_iter().enumerate() {
            let line = &mut self.out[(row + r) * self.sizes.n + column..][..count];
            if self.add {
                // Before anything is stored: registers may overlap.
                for (&place, sum) in places.iter().zip(&mut sums) {
                    let before = if WHOLE { T::load_whole::<S>(&line[place..]) } else { T::load(simd, line) };
                    *sum = T::plus(simd, before, *sum);
                }
            }
            for (&place, sum) in places.iter().zip(sums) {
                if WHOLE {
                    T::store_whole::<S>(&mut line[place..], sum);
                } else {
                    T::store(simd, line, sum);
                }
            }
        }
    }
}

/// What decides on tiles, as a constant of the instruction set.
struct Registers<S>(std::marker::PhantomData<S>);

impl<S: Simd> Registers<S> {
    const MANY: bool = S::REGISTER_COUNT >= 32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::Entry;
    use rand::{RngExt, SeedableRng};

    /// The product by its definition, in `f64`, in the order of the inner index.
    fn sums<T: Real>(Sizes { m, k, n }: Sizes, a: Matrix<'_, T>, b: Matrix<'_, T>) -> Vec<f64> {
        let element = |matrix: Matrix<'_, T>, row: usize, column: usize| {
            matrix.data[row * matrix.row_stride + column * matrix.column_stride].widen()
        };
        let sum = |row: usize, column: usize| {
            (0..k).fold(0.0, |sum, inner| sum + element(a, row, inner) * element(b, inner, column))
        };
        (0..m * n).map(|at| sum(at / n, at % n)).collect()
    }

    /// Small products have the bits of a plain loop, for every layout and number of columns.
    #[test]
    fn small_products_are_sums_in_order() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for (m, k, n) in [(1, 1, 1), (3, 5, 2), (20, 28, 29), (28, 20, 28), (1, 64, 70), (5, 33, 37)] {
            let mut draw =
                |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random_range(-1.0..1.0)).collect() };
            let (a, b, start) = (draw(m * k), draw(k * n), draw(m * n));
            for (turned_a, turned_b, add) in
                [(false, false, false), (true, false, true), (false, true, true), (true, true, false)]
            {
                let left = if turned_a { Matrix::rows(&a, m).transposed() } else { Matrix::rows(&a, k) };
                let right = if turned_b { Matrix::rows(&b, k).transposed() } else { Matrix::rows(&b, n) };
                let mut out = start.clone();
                product(Sizes { m, k, n }, left, right, &mut out, add);
                for (at, sum) in sums(Sizes { m, k, n }, left, right).into_iter().enumerate() {
                    let before = if add { start[at] } else { 0.0 };
                    let expected = before + sum as f32;
                    assert_eq!(out[at].to_bits(), expected.to_bits(), "{m} {k} {n} {} {}", at / n, at % n);
                }
            }
        }
    }

    /// Narrow products agree with sums in double precision, for every layout and edge of a tile.
    #[test]
    fn narrow_products_are_sums() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(8);
        for (m, k, n) in [
            (147, 28, 28),
            (28, 147, 29),
            (13, 500, 128),
            (1, 400, 64),
            (19, 60, 17),
            (600, 30, 1),
            (25, 90, 33),
        ] {
            let mut draw =
                |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random_range(-1.0..1.0)).collect() };
            let (a, b, start) = (draw(m * k), draw(k * n), draw(m * n));
            for (turned, add) in [(false, false), (true, true), (false, true), (true, false)] {
                let left = if turned { Matrix::rows(&a, m).transposed() } else { Matrix::rows(&a, k) };
                let mut out = start.clone();
                product(Sizes { m, k, n }, left, Matrix::rows(&b, n), &mut out, add);
                for (at, sum) in sums(Sizes { m, k, n }, left, Matrix::rows(&b, n)).into_iter().enumerate() {
                    let expected = if add { f64::from(start[at]) + sum } else { sum };
                    let error = (f64::from(out[at]) - expected).abs();
                    assert!(error <= 1e-6 * k as f64, "{m} {k} {n} {} {}: off by {error}", at / n, at % n);
                }
            }
        }
    }

    /// Compares the narrow products of each instruction set of this machine with sums in `f64`, by norm.
    fn narrow_on_every_instruction_set<T: Real>(precision: f64) {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(9);
        for (m, k, n) in
            [(1, 3, 1), (5, 7, 3), (13, 29, 9), (26, 28, 28), (29, 31, 33), (7, 65, 17), (15, 4, 128)]
        {
            let mut draw = |count: usize| -> Vec<T> {
                (0..count).map(|_| T::narrow(rng.random_range(-1.0..1.0))).collect()
            };
            let (a, b, start) = (draw(m * k), draw(k * n), draw(m * n));
            for (turned, add) in [(false, false), (true, true)] {
                let left = if turned { Matrix::rows(&a, m).transposed() } else { Matrix::rows(&a, k) };
                let mut expected = sums(Sizes { m, k, n }, left, Matrix::rows(&b, n));
                if add {
                    expected.iter_mut().zip(&start).for_each(|(sum, before)| *sum += before.widen());
                }
                let check = |name: &str, run: &dyn Fn(Entry<Narrow<'_, T>>)| {
                    let mut out = start.clone();
                    run(Entry(Narrow {
                        sizes: Sizes { m, k, n },
                        a: left,
                        b: &b,
                        pitch: n,
                        out: &mut out,
                        add,
                    }));
                    let square = |value: f64| value * value;
                    let missed: f64 = out.iter().zip(&expected).map(|(x, y)| square(x.widen() - y)).sum();
                    let norm: f64 = expected.iter().map(|&y| square(y)).sum();
                    let error = (missed / norm).sqrt();
                    assert!(error <= 4.0 * precision, "{name}, {m} {k} {n}, add {add}: {error:e}");
                };
                check("this machine's best", &|narrow| pulp::Arch::new().dispatch(narrow));
                check("scalar", &|narrow| pulp::Simd::vectorize(pulp::Scalar::new(), narrow));
                #[cfg(target_arch = "x86_64")]
                if let Some(simd) = pulp::x86::V3::try_new() {
                    check("AVX2", &|narrow| pulp::Simd::vectorize(simd, narrow));
                }
            }
        }
    }

    #[test]
    fn narrow_products_agree_on_every_instruction_set() {
        narrow_on_every_instruction_set::<f32>(f32::EPSILON.into());
        narrow_on_every_instruction_set::<f64>(f64::EPSILON);
    }
}
