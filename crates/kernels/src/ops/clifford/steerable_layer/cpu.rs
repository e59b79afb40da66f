//! The steerable layer on the CPU: everything about a chunk of rows happens while the chunk is in cache.

use crate::{
    gemm::{self, Matrix},
    ops::clifford::{
        layout::{Lines, split_chunks, sum_partials},
        program::Programs,
        sgp::{Epilogue, Needs, Prologue, cpu as product},
    },
    parallel::Flushed,
    simd::Real,
};
use rayon::prelude::*;

/// The operands as slices; matrices are `[grades, features, features]`.
pub(super) struct Slices<'a, T> {
    pub tables: &'a Programs,
    pub batch: usize,
    pub features: usize,
    pub x: &'a [T],
    pub right: &'a [T],
    pub a: &'a [T],
    pub w: &'a [T],
    /// Matrices and bias of the left map.
    pub left: Option<(&'a [T], &'a [T])>,
}

impl<'a, T: Real> Slices<'a, T> {
    fn product(&self) -> product::Operands<'a, T>
    where
        Self: 'a,
    {
        product::Operands {
            tables: self.tables,
            batch: self.batch,
            features: self.features,
            x: self.x,
            // Formed chunk by chunk.
            y: &[],
            weights: self.w,
            left: Prologue::None,
            right: Prologue::Normalize(self.a),
            epilogue: match self.left {
                Some(_) => Epilogue::AddTo { scale: Self::scale() },
                None => Epilogue::None,
            },
        }
    }

    fn scale() -> T {
        T::narrow(std::f64::consts::FRAC_1_SQRT_2)
    }

    /// The matrix of a blade's grade.
    fn matrix<'m>(&self, matrices: &'m [T], blade: usize) -> Matrix<'m, T> {
        let size = self.features * self.features;
        Matrix::rows(&matrices[usize::from(self.tables.grades[blade]) * size..][..size], self.features)
    }

    /// `out = lines·matrix` for each blade of a chunk.
    fn apply(&self, lines: &Lines<'_, T>, matrices: &[T], len: usize, out: &mut [T]) {
        let n = self.features;
        for (blade, out) in out.chunks_exact_mut(len).enumerate() {
            let a = Matrix::rows(lines.get(blade, 0, len), n);
            gemm::product(gemm::Sizes { m: len / n, k: n, n }, a, self.matrix(matrices, blade), out, false);
        }
    }
}

pub(super) fn forward<T: Real>(slices: &Slices<'_, T>, out: &mut [T]) {
    let n = slices.features;
    if slices.batch * n == 0 {
        return;
    }
    let operands = slices.product();
    let plan = product::Plan::new(&operands);
    split_chunks(out, &plan.layout).into_par_iter().enumerate().flushed_for_each(|(chunk, mut out)| {
        let len = out[0].len();
        let x = Lines::new(slices.x, &plan.layout, chunk);
        let mut right = vec![T::zero(); slices.tables.blades * len];
        slices.apply(&x, slices.right, len, &mut right);
        if let Some((matrices, bias)) = slices.left {
            for (blade, out) in out.iter_mut().enumerate() {
                let a = Matrix::rows(x.get(blade, 0, len), n);
                gemm::product(
                    gemm::Sizes { m: len / n, k: n, n },
                    a,
                    slices.matrix(matrices, blade),
                    out,
                    false,
                );
            }
            for row in out[0].chunks_exact_mut(n) {
                for (out, &bias) in row.iter_mut().zip(bias) {
                    *out += bias;
                }
            }
        }
        product::forward_chunk(&plan, chunk, Lines::local(&right, len), &mut out);
    });
}

/// Gradients of the parameters, in the layouts of [`Slices`].
pub(super) struct Gradients<T> {
    pub right: Vec<T>,
    pub a: Vec<T>,
    pub w: Vec<T>,
    pub left: Vec<T>,
    pub bias: Vec<T>,
}

impl<T> Default for Gradients<T> {
    fn default() -> Self {
        Self { right: Vec::new(), a: Vec::new(), w: Vec::new(), left: Vec::new(), bias: Vec::new() }
    }
}

/// Writes the gradient of `x` and returns those of the parameters.
pub(super) fn backward<T: Real>(slices: &Slices<'_, T>, grad: &[T], grad_x: &mut [T]) -> Gradients<T> {
    let (tables, n) = (slices.tables, slices.features);
    let matrices = tables.blades_of_grade.len() * n * n;
    let zeros = |count: usize| vec![T::zero(); count];
    let (grades, paths) = (tables.blades_of_grade.len(), tables.paths);
    if slices.batch * n == 0 {
        let (right, a, w) = (zeros(matrices), zeros(n * grades), zeros(n * paths));
        return Gradients { right, a, w, left: zeros(matrices), bias: zeros(n) };
    }
    let operands = slices.product();
    let plan = product::Plan::new(&operands);
    let scale = Slices::<T>::scale();
    // The division by √2 goes into the matrices once instead of into every row.
    let scaled_left: Option<Vec<T>> =
        slices.left.map(|(matrices, _)| matrices.iter().map(|&value| value * scale).collect());
    struct Partial<T> {
        product: (Vec<crate::simd::Lanes<T>>, Vec<crate::simd::Lanes<T>>),
        right: Vec<T>,
        left: Vec<T>,
        bias: Vec<T>,
    }
    let partials: Vec<Partial<T>> =
        split_chunks(grad_x, &plan.layout).into_par_iter().enumerate().flushed_map(|(chunk, mut grad_x)| {
            let len = grad_x[0].len();
            let rows = len / n;
            let x = Lines::new(slices.x, &plan.layout, chunk);
            let g = Lines::new(grad, &plan.layout, chunk);
            let mut right = zeros(tables.blades * len);
            slices.apply(&x, slices.right, len, &mut right);
            let mut grad_right = zeros(tables.blades * len);
            let mut lines: Vec<&mut [T]> = grad_right.chunks_exact_mut(len).collect();
            let local = Lines::local(&right, len);
            let product =
                product::backward_chunk(&plan, chunk, local, grad, Needs::ALL, &mut grad_x, &mut lines);
            let mut partial = Partial { product, right: zeros(matrices), left: Vec::new(), bias: Vec::new() };
            if slices.left.is_some() {
                partial.left = zeros(matrices);
                partial.bias = zeros(n);
                for row in g.get(0, 0, len).chunks_exact(n) {
                    for (sum, &g) in partial.bias.iter_mut().zip(row) {
                        *sum += g;
                    }
                }
            }
            for (blade, grad_x) in grad_x.iter_mut().enumerate() {
                let size = n * n;
                let grade = usize::from(tables.grades[blade]);
                let transposed = Matrix::rows(x.get(blade, 0, len), n).transposed();
                let upstream = Matrix::rows(&*lines[blade], n);
                let matrix = slices.matrix(slices.right, blade).transposed();
                gemm::product(gemm::Sizes { m: rows, k: n, n }, upstream, matrix, grad_x, true);
                let target = &mut partial.right[grade * size..][..size];
                gemm::product(gemm::Sizes { m: n, k: rows, n }, transposed, upstream, target, true);
                if let Some(left) = &scaled_left {
                    let upstream = Matrix::rows(g.get(blade, 0, len), n);
                    gemm::product(
                        gemm::Sizes { m: rows, k: n, n },
                        upstream,
                        slices.matrix(left, blade).transposed(),
                        grad_x,
                        true,
                    );
                    let target = &mut partial.left[grade * size..][..size];
                    gemm::product(gemm::Sizes { m: n, k: rows, n }, transposed, upstream, target, true);
                }
            }
            partial
        });

    let (mut weights, mut normalization) = (Vec::new(), Vec::new());
    let (mut right, mut left, mut bias) = (Vec::new(), Vec::new(), Vec::new());
    for partial in partials {
        weights.push(partial.product.0);
        normalization.push(partial.product.1);
        right.push(partial.right);
        left.push(partial.left);
        bias.push(partial.bias);
    }
    let total = |partials: Vec<Vec<T>>, factor: T| -> Vec<T> {
        sum_partials(partials).unwrap_or_default().into_iter().map(|value| value * factor).collect()
    };
    Gradients {
        right: total(right, T::one()),
        a: plan.fold(&normalization, grades),
        w: plan.fold(&weights, paths),
        left: total(left, scale),
        bias: total(bias, scale),
    }
}
