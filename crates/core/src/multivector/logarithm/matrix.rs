//! Small square matrices: as much as logarithms need.

use crate::Real;
use alloc::{vec, vec::Vec};

/// A square matrix, by rows.
#[derive(Clone)]
pub(super) struct Matrix<T> {
    pub(super) size: usize,
    pub(super) rows: Vec<T>,
}

impl<T: Real> Matrix<T> {
    pub(super) fn new(size: usize, mut entry: impl FnMut(usize, usize) -> T) -> Self {
        let mut rows = vec![T::zero(); size * size];
        for row in 0..size {
            for column in 0..size {
                rows[row * size + column] = entry(row, column);
            }
        }
        Self { size, rows }
    }

    pub(super) fn identity(size: usize) -> Self {
        Self::new(size, |row, column| if row == column { T::one() } else { T::zero() })
    }

    pub(super) fn at(&self, row: usize, column: usize) -> T {
        self.rows[row * self.size + column]
    }

    fn map(&self, mut f: impl FnMut(usize, T) -> T) -> Self {
        let rows = self.rows.iter().enumerate().map(|(index, &x)| f(index, x)).collect();
        Self { size: self.size, rows }
    }

    pub(super) fn scaled(&self, factor: T) -> Self {
        self.map(|_, x| x * factor)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        self.map(|index, x| x + other.rows[index])
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.map(|index, x| x - other.rows[index])
    }

    pub(super) fn plus_identity(&self, factor: T) -> Self {
        self.plus(&Self::identity(self.size).scaled(factor))
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let mut product = Self::new(self.size, |_, _| T::zero());
        for row in 0..self.size {
            for inner in 0..self.size {
                let factor = self.at(row, inner);
                if factor.is_zero() {
                    continue;
                }
                for column in 0..self.size {
                    product.rows[row * self.size + column] += factor * other.at(inner, column);
                }
            }
        }
        product
    }

    pub(super) fn apply(&self, vector: &[T]) -> Vec<T> {
        let dot = |row: &[T]| row.iter().zip(vector).fold(T::zero(), |sum, (&a, &b)| sum + a * b);
        self.rows.chunks(self.size.max(1)).map(dot).collect()
    }

    pub(super) fn trace(&self) -> T {
        (0..self.size).fold(T::zero(), |sum, index| sum + self.at(index, index))
    }

    /// The largest magnitude of an entry; infinite if one is not a number.
    pub(super) fn largest(&self) -> T {
        self.rows
            .iter()
            .fold(T::zero(), |largest, x| if x.is_nan() { T::infinity() } else { largest.max(x.abs()) })
    }

    /// The inverse, by elimination with the largest pivot of each column.
    pub(super) fn inverse(&self) -> Option<Self> {
        let n = self.size;
        let (mut left, mut right) = (self.clone(), Self::identity(n));
        for column in 0..n {
            let pivot = (column..n).fold(column, |best, row| {
                if left.at(row, column).abs() > left.at(best, column).abs() { row } else { best }
            });
            let value = left.at(pivot, column);
            if value.is_zero() || !value.is_finite() {
                return None;
            }
            for matrix in [&mut left, &mut right] {
                for index in 0..n {
                    matrix.rows.swap(pivot * n + index, column * n + index);
                    matrix.rows[column * n + index] /= value;
                }
            }
            for row in (0..n).filter(|&row| row != column) {
                let factor = left.at(row, column);
                for matrix in [&mut left, &mut right] {
                    for index in 0..n {
                        let change = factor * matrix.at(column, index);
                        matrix.rows[row * n + index] -= change;
                    }
                }
            }
        }
        Some(right)
    }

    /// The principal square root, by the iteration of Denman and Beavers. None if an eigenvalue is negative, as far as the
    /// iteration shows.
    fn square_root(&self) -> Option<Self> {
        let half = T::from_f64(0.5);
        let (mut root, mut inverse_root) = (self.clone(), Self::identity(self.size));
        let mut last = T::infinity();
        for _ in 0..50 {
            let next = root.plus(&inverse_root.inverse()?).scaled(half);
            inverse_root = inverse_root.plus(&root.inverse()?).scaled(half);
            let change = next.minus(&root).largest();
            root = next;
            if !change.is_finite() {
                return None;
            }
            let size = root.largest().max(T::one());
            if change <= T::epsilon() * size || (change < T::from_f64(1e-3) * size && change >= last) {
                return Some(root);
            }
            last = change;
        }
        None
    }

    /// The principal logarithm: square roots until the matrix is close to 1, and 2 artanh of (A − 1) / (A + 1).
    pub(super) fn logarithm(&self) -> Option<Self> {
        let (mut root, mut power) = (self.clone(), T::from_f64(2.0));
        for _ in 0..60 {
            let distance = root.plus_identity(-T::one());
            if distance.largest() * T::from_f64(self.size as f64) < T::from_f64(0.5) {
                let quotient = distance.times(&root.plus_identity(T::one()).inverse()?);
                let square = quotient.times(&quotient);
                let (mut term, mut sum) = (quotient.clone(), quotient);
                // The norm of the quotient is below ⅓: 3⁻³⁶ is 7e-18.
                for k in 1..=18 {
                    term = term.times(&square);
                    sum = sum.plus(&term.scaled(T::from_f64(f64::from(2 * k + 1).recip())));
                }
                return Some(sum.scaled(power));
            }
            root = root.square_root()?;
            power = power + power;
        }
        None
    }

    /// ∫₀¹ exp(−s A) ds = (1 − exp(−A)) / A, by its series of a fraction of A, doubled.
    pub(super) fn mean_of_exponentials(&self) -> Self {
        let (mut fraction, mut doublings) = (-T::one(), 0);
        let size = self.largest() * T::from_f64(self.size as f64);
        while size * fraction.abs() > T::from_f64(0.5) && doublings < 60 {
            fraction *= T::from_f64(0.5);
            doublings += 1;
        }
        let small = self.scaled(fraction);
        let identity = Self::identity(self.size);
        let (mut exponential, mut mean, mut term) = (identity.clone(), identity.clone(), identity);
        for k in 1..=15 {
            term = term.times(&small).scaled(T::from_f64(f64::from(k).recip()));
            exponential = exponential.plus(&term);
            mean = mean.plus(&term.scaled(T::from_f64(f64::from(k + 1).recip())));
        }
        for _ in 0..doublings {
            mean = mean.plus(&mean.times(&exponential)).scaled(T::from_f64(0.5));
            exponential = exponential.times(&exponential);
        }
        mean
    }

    /// The singular values σ with the columns A v and v of the decomposition, by rotations of pairs of columns (Jacobi's, one-sided):
    /// small ones keep their digits.
    fn singular(&self) -> (Vec<T>, Self, Self) {
        let n = self.size;
        let (mut images, mut vectors) = (self.clone(), Self::identity(n));
        for _ in 0..40 {
            let mut rotated = false;
            for p in 0..n {
                for q in p + 1..n {
                    let dot = |a: usize, b: usize| {
                        (0..n).fold(T::zero(), |sum, row| sum + images.at(row, a) * images.at(row, b))
                    };
                    let (pp, qq, pq) = (dot(p, p), dot(q, q), dot(p, q));
                    if pq.is_zero() || pq.abs() <= T::epsilon() * (pp * qq).sqrt() {
                        continue;
                    }
                    rotated = true;
                    let cotangent = (qq - pp) / (pq + pq);
                    let sign = if cotangent < T::zero() { -T::one() } else { T::one() };
                    let tangent = sign / (cotangent.abs() + (T::one() + cotangent * cotangent).sqrt());
                    let cosine = (T::one() + tangent * tangent).sqrt().recip();
                    let sine = cosine * tangent;
                    for matrix in [&mut images, &mut vectors] {
                        for row in 0..n {
                            let (a, b) = (matrix.at(row, p), matrix.at(row, q));
                            matrix.rows[row * n + p] = cosine * a - sine * b;
                            matrix.rows[row * n + q] = sine * a + cosine * b;
                        }
                    }
                }
            }
            if !rotated {
                break;
            }
        }
        let length = |column: usize| {
            (0..n).fold(T::zero(), |sum, row| sum + images.at(row, column) * images.at(row, column)).sqrt()
        };
        ((0..n).map(length).collect(), images, vectors)
    }

    /// The shortest x for which A x is closest to `right`, with singular values below `cutoff` of the largest taken for zero.
    pub(super) fn least_squares(&self, right: &[T], cutoff: T) -> Vec<T> {
        let (values, images, vectors) = self.singular();
        let largest = values.iter().fold(T::zero(), |largest, &value| largest.max(value));
        let mut solution = vec![T::zero(); self.size];
        for (column, &value) in values.iter().enumerate() {
            if value.is_zero() || value <= cutoff * largest {
                continue;
            }
            let dot = (0..self.size).fold(T::zero(), |sum, row| sum + images.at(row, column) * right[row]);
            let factor = dot / value / value;
            for (row, x) in solution.iter_mut().enumerate() {
                *x += factor * vectors.at(row, column);
            }
        }
        solution
    }

    /// Vectors that span those that the matrix takes to zero, up to `cutoff` of its largest singular value (at least 1).
    pub(super) fn kernel(&self, cutoff: T) -> Vec<Vec<T>> {
        let (values, _, vectors) = self.singular();
        let largest = values.iter().fold(T::one(), |largest, &value| largest.max(value));
        let kept = (0..self.size).filter(|&column| values[column] <= cutoff * largest);
        kept.map(|column| (0..self.size).map(|row| vectors.at(row, column)).collect()).collect()
    }
}
