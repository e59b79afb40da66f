//! The steerable layer on the CPU: everything about a chunk of rows happens while the chunk is in cache.

use super::NAME;
use crate::{
    Result,
    cpu::{
        gemm::{self, Matrix},
        parallel::Flushed,
        simd::Real,
    },
    ops::clifford::{
        algebra::{
            layout::{Layout, Lines, split_chunks, sum_partials},
            program::Programs,
        },
        product::sgp::{Epilogue, Needs, Prologue, cpu as product},
    },
    runtime::memory::Scratch,
};
use rayon::prelude::*;

/// The parameters as slices; matrices are `[grades, features, features]`.
pub(crate) struct Slices<'a, T> {
    pub tables: &'a Programs,
    pub batch: usize,
    pub features: usize,
    pub right: &'a [T],
    pub a: &'a [T],
    pub w: &'a [T],
    /// Matrices and bias of the left map.
    pub left: Option<(&'a [T], &'a [T])>,
}

impl<'a, T: Real> Slices<'a, T> {
    /// The product with operands that are given chunk by chunk.
    pub fn product(&self) -> product::Operands<'a, T>
    where
        Self: 'a,
    {
        product::Operands {
            tables: self.tables,
            batch: self.batch,
            features: self.features,
            x: &[],
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
}

/// Matrices `[grades, rows, columns]`, each transposed.
pub(crate) fn transposed<T: Real>(matrices: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut result = vec![T::zero(); matrices.len()];
    let size = (rows * columns).max(1);
    for (result, matrix) in result.chunks_exact_mut(size).zip(matrices.chunks_exact(size)) {
        Matrix::rows(matrix, columns).transposed().copy_to(columns, result);
    }
    result
}

/// Data that all chunks of a pass share.
pub(crate) struct Plan<'a, T> {
    slices: &'a Slices<'a, T>,
    product: product::Plan<'a, T>,
    /// The transposed matrices of the right and of the left map; the latter are divided by √2 here, once, instead of in every row. `None`
    /// in the forward pass.
    back: Option<(Vec<T>, Vec<T>)>,
}

impl<'a, T: Real> Plan<'a, T> {
    /// The plan of the forward pass; `operands` are [`Slices::product`].
    pub fn forward(slices: &'a Slices<'a, T>, operands: &'a product::Operands<'a, T>) -> Self {
        Self { slices, product: product::Plan::new(operands), back: None }
    }

    /// The plan of the backward pass.
    pub fn backward(slices: &'a Slices<'a, T>, operands: &'a product::Operands<'a, T>) -> Self {
        let (n, scale) = (slices.features, Slices::<T>::scale());
        let mut left = slices.left.map_or_else(Vec::new, |(matrices, _)| transposed(matrices, n, n));
        left.iter_mut().for_each(|value| *value *= scale);
        Self { back: Some((transposed(slices.right, n, n), left)), ..Self::forward(slices, operands) }
    }

    pub fn layout(&self) -> &Layout {
        &self.product.layout
    }

    /// The matrix of a blade's grade.
    fn matrix<'m>(&self, matrices: &'m [T], blade: usize) -> Matrix<'m, T> {
        let n = self.slices.features;
        Matrix::rows(&matrices[usize::from(self.slices.tables.grades[blade]) * n * n..][..n * n], n)
    }

    /// The right factor of a chunk before its normalisation, `len` elements for each blade.
    pub fn right_chunk(&self, x: Lines<'_, T>, len: usize, right: &mut [T]) {
        let n = self.slices.features;
        for (blade, right) in right.chunks_exact_mut(len).enumerate() {
            let a = Matrix::rows(x.get(blade, 0, len), n);
            let b = self.matrix(self.slices.right, blade);
            gemm::product(gemm::Sizes { m: len / n, k: n, n }, a, b, right, false);
        }
    }

    /// The output of a chunk, whose right factor is that of [`right_chunk`](Self::right_chunk).
    pub fn forward_chunk(&self, chunk: usize, x: Lines<'_, T>, right: Lines<'_, T>, out: &mut [&mut [T]]) {
        let n = self.slices.features;
        if let Some((matrices, bias)) = self.slices.left {
            for (blade, out) in out.iter_mut().enumerate() {
                let a = Matrix::rows(x.get(blade, 0, out.len()), n);
                let b = self.matrix(matrices, blade);
                gemm::product(gemm::Sizes { m: out.len() / n, k: n, n }, a, b, out, false);
            }
            for row in out[0].chunks_exact_mut(n) {
                for (out, &bias) in row.iter_mut().zip(bias) {
                    *out += bias;
                }
            }
        }
        product::forward_chunk(&self.product, chunk, [x, right], out);
    }

    /// Writes the gradient of `x` in a chunk and returns those of the parameters.
    pub fn backward_chunk(
        &self,
        chunk: usize,
        x: Lines<'_, T>,
        right: Lines<'_, T>,
        grad: Lines<'_, T>,
        grad_x: &mut [&mut [T]],
    ) -> Result<Partial<T>> {
        let (tables, n) = (self.slices.tables, self.slices.features);
        let len = grad_x.first().map_or(0, |line| line.len());
        let rows = len / n;
        let zeros = |count: usize| vec![T::zero(); count];
        let matrices = tables.blades_of_grade.len() * n * n;
        let mut grad_right = Scratch::new(tables.blades * len, NAME)?;
        let mut lines: Vec<&mut [T]> = grad_right.chunks_exact_mut(len).collect();
        let operands = [x, right, grad];
        let product =
            product::backward_chunk(&self.product, chunk, operands, &[], Needs::ALL, grad_x, &mut lines);
        let mut partial = Partial { product, right: zeros(matrices), left: Vec::new(), bias: Vec::new() };
        let Some((turned_right, turned_left)) = &self.back else { return Ok(partial) };
        if self.slices.left.is_some() {
            partial.left = zeros(matrices);
            partial.bias = zeros(n);
            add_rows(grad.get(0, 0, len), &mut partial.bias);
        }
        for (blade, grad_x) in grad_x.iter_mut().enumerate() {
            let transposed = Matrix::rows(x.get(blade, 0, len), n).transposed();
            let (along, across) = (gemm::Sizes { m: rows, k: n, n }, gemm::Sizes { m: n, k: rows, n });
            let place = usize::from(tables.grades[blade]) * n * n;
            let upstream = Matrix::rows(&*lines[blade], n);
            gemm::product(along, upstream, self.matrix(turned_right, blade), grad_x, true);
            gemm::product(across, transposed, upstream, &mut partial.right[place..][..n * n], true);
            if self.slices.left.is_some() {
                let upstream = Matrix::rows(grad.get(blade, 0, len), n);
                gemm::product(along, upstream, self.matrix(turned_left, blade), grad_x, true);
                gemm::product(across, transposed, upstream, &mut partial.left[place..][..n * n], true);
            }
        }
        Ok(partial)
    }

    /// The gradients of the parameters from those of the chunks.
    pub fn fold(&self, partials: Vec<Partial<T>>) -> Gradients<T> {
        let tables = self.slices.tables;
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
            a: self.product.fold(normalization, tables.blades_of_grade.len()),
            w: self.product.fold(weights, tables.paths),
            left: total(left, Slices::<T>::scale()),
            bias: total(bias, Slices::<T>::scale()),
        }
    }
}

/// Adds the rows of `values` to `sums`, one row long.
pub(crate) fn add_rows<T: Real>(values: &[T], sums: &mut [T]) {
    for row in values.chunks_exact(sums.len()) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
}

/// Gradients of the parameters from one chunk.
pub(crate) struct Partial<T> {
    product: (Vec<T>, Vec<T>),
    right: Vec<T>,
    left: Vec<T>,
    bias: Vec<T>,
}

pub(super) fn forward<T: Real>(slices: &Slices<'_, T>, x: &[T], out: &mut [T]) -> Result<()> {
    if slices.batch * slices.features == 0 {
        return Ok(());
    }
    let operands = slices.product();
    let plan = Plan::forward(slices, &operands);
    let chunks = split_chunks(out, plan.layout()).into_par_iter().enumerate();
    let done = chunks.flushed_map(|(chunk, mut out)| {
        let len = out[0].len();
        let x = Lines::new(x, plan.layout(), chunk);
        let mut right = Scratch::new(slices.tables.blades * len, NAME)?;
        plan.right_chunk(x, len, &mut right);
        plan.forward_chunk(chunk, x, Lines::local(&right, len), &mut out);
        Ok(())
    });
    done.into_iter().collect()
}

/// Gradients of the parameters, in the layouts of [`Slices`].
pub(crate) struct Gradients<T> {
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

impl<T: Real> Slices<'_, T> {
    /// The gradients of an empty batch.
    pub fn no_gradients(&self) -> Gradients<T> {
        let (n, grades) = (self.features, self.tables.blades_of_grade.len());
        let zeros = |count: usize| vec![T::zero(); count];
        let (matrices, paths) = (grades * n * n, self.tables.paths);
        Gradients {
            right: zeros(matrices),
            a: zeros(n * grades),
            w: zeros(n * paths),
            left: zeros(matrices),
            bias: zeros(n),
        }
    }
}

/// Writes the gradient of `x` and returns those of the parameters.
pub(super) fn backward<T: Real>(
    slices: &Slices<'_, T>,
    x: &[T],
    grad: &[T],
    grad_x: &mut [T],
) -> Result<Gradients<T>> {
    if slices.batch * slices.features == 0 {
        return Ok(slices.no_gradients());
    }
    let operands = slices.product();
    let plan = Plan::backward(slices, &operands);
    let chunks = split_chunks(grad_x, plan.layout()).into_par_iter().enumerate();
    let partials = chunks.flushed_map(|(chunk, mut grad_x)| {
        let len = grad_x[0].len();
        let (x, grad) = (Lines::new(x, plan.layout(), chunk), Lines::new(grad, plan.layout(), chunk));
        let mut right = Scratch::new(slices.tables.blades * len, NAME)?;
        plan.right_chunk(x, len, &mut right);
        plan.backward_chunk(chunk, x, Lines::local(&right, len), grad, &mut grad_x)
    });
    Ok(plan.fold(partials.into_iter().collect::<Result<_>>()?))
}
