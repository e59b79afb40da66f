//! The fully connected product on the CPU.
//!
//! For each path the sums ±x_i·y_k of all result blades of a grade are formed for a chunk of rows and multiplied by
//! the path's matrix at once; only that chunk's sums exist at any time.

use crate::{
    cpu::{
        gemm::{self, Matrix},
        parallel::Flushed,
        simd::{Kernel, LANES, Real, Simd, accumulate, dispatch, subtract_product},
    },
    ops::clifford::{
        algebra::{
            layout::{Layout, load, split_chunks, store},
            program::Programs,
            tile,
        },
        pointwise::rms_norm,
    },
};
use rayon::prelude::*;

/// Operands of a fully connected product; `x` and `y` are `[blades, batch, inputs]`, weights `[paths, inputs, outputs]`.
pub(crate) struct Operands<'a, T> {
    pub tables: &'a Programs,
    pub batch: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub x: &'a [T],
    pub y: &'a [T],
    pub weights: &'a [T],
}

/// Rows per chunk: enough for the matrix products to run at speed, few enough for the sums to stay in cache.
fn rows_per_chunk(operands: &Operands<'_, impl Real>) -> usize {
    (16_384 / operands.inputs.max(1)).clamp(32, 256).min(operands.batch.div_ceil(4).max(16))
}

/// A layout whose chunks are `rows` rows.
fn chunked(blades: usize, batch: usize, features: usize, rows: usize) -> Layout {
    Layout { chunk: rows, ..Layout::new(blades, batch, features) }
}

/// The sums ±x_i·y_k of one path for rows `start..start+rows`, `[blades of the out grade, rows, inputs]`.
struct PathSums<'a, T> {
    operands: &'a Operands<'a, T>,
    path: usize,
    start: usize,
    rows: usize,
    first: usize,
    sums: &'a mut [T],
}

impl<T: Real> Kernel for PathSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { operands, path, start, rows, first, sums } = self;
        let n = operands.inputs;
        let part = |data: &'_ [T], blade: u16, offset: usize, count: usize| {
            load(&data[(usize::from(blade) * operands.batch + start) * n + offset..][..count])
        };
        let len = rows * n;
        for group in operands.tables.by_path.span(path) {
            let out = &mut sums[(usize::from(group.result) - first) * len..][..len];
            for offset in (0..len).step_by(LANES) {
                let count = LANES.min(len - offset);
                let mut sum = [T::zero(); LANES];
                let pairs = &operands.tables.by_path.pairs;
                for &(i, k) in &pairs[group.start as usize..group.split as usize] {
                    let (x, y) = (part(operands.x, i, offset, count), part(operands.y, k, offset, count));
                    accumulate::<T, FMA>(&mut sum, &x, &y);
                }
                for &(i, k) in &pairs[group.split as usize..group.end as usize] {
                    let (x, y) = (part(operands.x, i, offset, count), part(operands.y, k, offset, count));
                    subtract_product::<T, FMA>(&mut sum, &x, &y);
                }
                store(&mut out[offset..offset + count], &sum);
            }
        }
    }
}

/// Forms the sums of `path` in `sums`; blades of the grade that the path does not reach (degenerate metrics) are zero.
fn path_sums<T: Real>(
    operands: &Operands<'_, T>,
    path: usize,
    rows: std::ops::Range<usize>,
    blades: &std::ops::Range<usize>,
    sums: &mut [T],
) {
    if operands.tables.by_path.span(path).len() < blades.len() {
        sums.fill(T::zero());
    }
    dispatch(PathSums { operands, path, start: rows.start, rows: rows.len(), first: blades.start, sums });
}

/// The result blades of a path.
fn out_blades(tables: &Programs, path: usize) -> std::ops::Range<usize> {
    let grade = tables.by_path.span(path).first().map_or(0, |group| tables.grades[usize::from(group.result)]);
    tables.blades_of_grade[usize::from(grade)].clone()
}

/// `out_j = Σ_paths (Σ ±x_i·y_k)·w[path]`, normalised if `inverse_rms` is given: `[chunks of rows][grades][rows]`.
pub(crate) fn forward<T: Real>(operands: &Operands<'_, T>, normalize: bool, out: &mut [T]) -> Vec<T> {
    let tables = operands.tables;
    let (n, m) = (operands.inputs, operands.outputs);
    let rows = rows_per_chunk(operands);
    let layout = chunked(tables.blades, operands.batch, m, rows);
    let grades = tables.blades_of_grade.len();
    let parts: Vec<Vec<T>> =
        split_chunks(out, &layout).into_par_iter().enumerate().flushed_map(|(chunk, mut out)| {
            let start = chunk * rows;
            let rows = rows.min(operands.batch - start);
            let widest = tables.blades_of_grade.iter().map(|blades| blades.len()).max().unwrap_or(0);
            let mut sums = vec![T::zero(); widest * rows * n];
            let mut product = vec![T::zero(); tables.blades * rows * m];
            for path in 0..tables.paths {
                let blades = out_blades(tables, path);
                let sums = &mut sums[..blades.len() * rows * n];
                path_sums(operands, path, start..start + rows, &blades, sums);
                gemm::product(
                    gemm::Sizes { m: blades.len() * rows, k: n, n: m },
                    Matrix::rows(sums, n),
                    Matrix::rows(&operands.weights[path * n * m..][..n * m], m),
                    &mut product[blades.start * rows * m..blades.end * rows * m],
                    true,
                );
            }
            for (line, product) in out.iter_mut().zip(product.chunks_exact((rows * m).max(1))) {
                line.copy_from_slice(product);
            }
            let mut inverse_rms = vec![T::zero(); if normalize { grades * rows } else { 0 }];
            if normalize && m > 0 {
                dispatch(rms_norm::ScaleRows {
                    tables,
                    lines: &mut out,
                    features: m,
                    inverse_rms: &mut inverse_rms,
                });
            }
            inverse_rms
        });
    rms_norm::join_rows(&parts, grades, operands.batch)
}

/// Gradients of the unnormalised product for the cotangent `grad` `[blades, batch, outputs]`.
///
/// `grad_x` and `grad_y` are written (both or, when empty, neither); returns the gradient of the weights if wanted.
pub(crate) fn backward<T: Real>(
    operands: &Operands<'_, T>,
    grad: &[T],
    want_weights: bool,
    grad_x: &mut [T],
    grad_y: &mut [T],
) -> Vec<T> {
    if !grad_x.is_empty() {
        operand_gradients(operands, grad, grad_x, grad_y);
    }
    if want_weights { weight_gradient(operands, grad) } else { Vec::new() }
}

fn operand_gradients<T: Real>(operands: &Operands<'_, T>, grad: &[T], grad_x: &mut [T], grad_y: &mut [T]) {
    let tables = operands.tables;
    let (n, m) = (operands.inputs, operands.outputs);
    let rows = rows_per_chunk(operands);
    let layout = chunked(tables.blades, operands.batch, n, rows);
    split_chunks(grad_x, &layout)
        .into_par_iter()
        .zip(split_chunks(grad_y, &layout))
        .enumerate()
        .flushed_for_each(|(chunk, (mut grad_x, mut grad_y))| {
            let start = chunk * rows;
            let rows = rows.min(operands.batch - start);
            let mut upstream = vec![T::zero(); tables.blades * rows * m];
            for (blade, upstream) in upstream.chunks_exact_mut((rows * m).max(1)).enumerate() {
                upstream.copy_from_slice(&grad[(blade * operands.batch + start) * m..][..rows * m]);
            }
            let widest = tables.blades_of_grade.iter().map(|blades| blades.len()).max().unwrap_or(0);
            let mut sums = vec![T::zero(); widest * rows * n];
            for line in grad_x.iter_mut().chain(grad_y.iter_mut()) {
                line.fill(T::zero());
            }
            for path in 0..tables.paths {
                let blades = out_blades(tables, path);
                let sums = &mut sums[..blades.len() * rows * n];
                gemm::product(
                    gemm::Sizes { m: blades.len() * rows, k: m, n },
                    Matrix::rows(&upstream[blades.start * rows * m..blades.end * rows * m], m),
                    Matrix::rows(&operands.weights[path * n * m..][..n * m], m).transposed(),
                    sums,
                    false,
                );
                dispatch(Scatter {
                    operands,
                    path,
                    start,
                    rows,
                    first: blades.start,
                    sums,
                    grad_x: &mut grad_x,
                    grad_y: &mut grad_y,
                });
            }
        });
}

/// Adds ±y_k·sum_j to ∂x_i and ±x_i·sum_j to ∂y_k for every term of a path.
struct Scatter<'a, 'b, T> {
    operands: &'a Operands<'a, T>,
    path: usize,
    start: usize,
    rows: usize,
    first: usize,
    sums: &'a [T],
    grad_x: &'a mut [&'b mut [T]],
    grad_y: &'a mut [&'b mut [T]],
}

impl<T: Real> Kernel for Scatter<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { operands, path, start, rows, first, sums, grad_x, grad_y } = self;
        let n = operands.inputs;
        let len = rows * n;
        let program = &operands.tables.by_path;
        // Blocks of positions small enough that every operand and gradient of the block stays in the first-level cache.
        for offset in (0..len).step_by(LANES) {
            let count = LANES.min(len - offset);
            let part = |data: &'_ [T], blade: usize| {
                load(&data[(blade * operands.batch + start) * n + offset..][..count])
            };
            for group in program.span(path) {
                let sum = load(&sums[(usize::from(group.result) - first) * len + offset..][..count]);
                for index in group.start..group.end {
                    let (i, k) = program.pairs[index as usize];
                    let (i, k) = (usize::from(i), usize::from(k));
                    let (x, y) = (part(operands.x, i), part(operands.y, k));
                    let target_x = &mut grad_x[i][offset..offset + count];
                    let mut gx = load(target_x);
                    let target_y = &mut grad_y[k][offset..offset + count];
                    let mut gy = load(target_y);
                    if index < group.split {
                        accumulate::<T, FMA>(&mut gx, &sum, &y);
                        accumulate::<T, FMA>(&mut gy, &sum, &x);
                    } else {
                        subtract_product::<T, FMA>(&mut gx, &sum, &y);
                        subtract_product::<T, FMA>(&mut gy, &sum, &x);
                    }
                    store(target_x, &gx);
                    store(target_y, &gy);
                }
            }
        }
    }
}

fn weight_gradient<T: Real>(operands: &Operands<'_, T>, grad: &[T]) -> Vec<T> {
    let tables = operands.tables;
    let (n, m) = (operands.inputs, operands.outputs);
    let mut weights = vec![T::zero(); tables.paths * n * m];
    if n * m == 0 {
        return weights;
    }
    let rows = rows_per_chunk(operands);
    weights.par_chunks_exact_mut(n * m).enumerate().flushed_for_each(|(path, out)| {
        let blades = out_blades(tables, path);
        let mut sums = vec![T::zero(); blades.len() * rows * n];
        for start in (0..operands.batch).step_by(rows) {
            let rows = rows.min(operands.batch - start);
            let sums = &mut sums[..blades.len() * rows * n];
            path_sums(operands, path, start..start + rows, &blades, sums);
            for (index, blade) in blades.clone().enumerate() {
                gemm::product(
                    gemm::Sizes { m: n, k: rows, n: m },
                    Matrix::rows(&sums[index * rows * n..][..rows * n], n).transposed(),
                    Matrix::rows(&grad[(blade * operands.batch + start) * m..][..rows * m], m),
                    out,
                    true,
                );
            }
        }
    });
    weights
}

/// gate(x) = x·Φ(x₀) of a whole array `[blades, len]`.
pub(crate) fn gate<T: Real>(blades: usize, x: &[T]) -> Vec<T> {
    let mut out = vec![T::zero(); x.len()];
    for_blocks(blades, x, &mut out, |kernel| dispatch(Gate { kernel, grad: None }));
    out
}

/// Turns the gradient of gate(x), in `grad`, into that of x.
pub(crate) fn gate_gradient<T: Real>(blades: usize, x: &[T], grad: &mut [T]) {
    let upstream = grad.to_vec();
    for_blocks(blades, x, grad, |kernel| dispatch(Gate { kernel, grad: Some(&upstream) }));
}

struct Block<'a, 'b, T> {
    x: &'a [T],
    out: &'a mut [&'b mut [T]],
    start: usize,
}

fn for_blocks<T: Real>(
    blades: usize,
    x: &[T],
    out: &mut [T],
    body: impl for<'a, 'b> Fn(Block<'a, 'b, T>) + Sync,
) {
    const BLOCK: usize = 4096;
    let layout = chunked(blades, x.len() / blades.max(1), 1, BLOCK);
    split_chunks(out, &layout)
        .into_par_iter()
        .enumerate()
        .flushed_for_each(|(chunk, mut out)| body(Block { x, out: &mut out, start: chunk * BLOCK }));
}

struct Gate<'a, 'b, T> {
    kernel: Block<'a, 'b, T>,
    grad: Option<&'a [T]>,
}

impl<T: Real> Kernel for Gate<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Block { x, out, start } = self.kernel;
        let line = x.len() / out.len().max(1);
        let len = out.first().map_or(0, |line| line.len());
        for offset in (0..len).step_by(LANES) {
            let count = LANES.min(len - offset);
            let at = |data: &'_ [T], blade: usize| load(&data[blade * line + start + offset..][..count]);
            let scalar = at(x, 0);
            let cdf = tile::normal_cdf::<T, FMA>(&scalar);
            let mut dot = [T::zero(); LANES];
            for (blade, out) in out.iter_mut().enumerate() {
                let mut part = at(x, blade);
                if let Some(grad) = self.grad {
                    let g = at(grad, blade);
                    accumulate::<T, FMA>(&mut dot, &part, &g);
                    part = g;
                }
                for lane in 0..LANES {
                    part[lane] *= cdf[lane];
                }
                store(&mut out[offset..offset + count], &part);
            }
            if self.grad.is_some() {
                let target = &mut out[0][offset..offset + count];
                let mut part = load(target);
                for lane in 0..LANES {
                    part[lane] += scalar[lane].normal_pdf::<FMA>() * dot[lane];
                }
                store(target, &part);
            }
        }
    }
}
