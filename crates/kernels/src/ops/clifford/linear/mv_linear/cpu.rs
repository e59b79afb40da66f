//! The grade-wise linear map on the CPU: one matrix product per grade and chunk of rows.
//!
//! Blades of one grade are adjacent, so the features of a grade form one matrix `[blades of grade × batch, in]`.

use crate::{
    cpu::{
        gemm::{self, Matrix},
        parallel::{self, Flushed},
        simd::Real,
    },
    ops::clifford::algebra::{layout::sum_partials, program::Programs},
};
use rayon::prelude::*;
use std::ops::Range;

/// Sizes of a linear map: weights are `[grades, in, out]`, or `[1, in, out]` when the grades share one matrix.
pub(crate) struct Linear<'a> {
    pub tables: &'a Programs,
    pub batch: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub shared: bool,
}

/// Rows of one grade, counted over all blades, and the index of their matrix.
struct Task {
    rows: Range<usize>,
    matrix: usize,
}

impl Linear<'_> {
    /// Rows that use the same matrix, cut into pieces of at most `max_rows`.
    fn tasks(&self, max_rows: usize) -> Vec<Task> {
        let all = 0..self.tables.blades;
        let groups = if self.shared { std::slice::from_ref(&all) } else { &self.tables.blades_of_grade[..] };
        groups
            .iter()
            .enumerate()
            .flat_map(|(matrix, blades)| {
                let (start, end) = (blades.start * self.batch, blades.end * self.batch);
                (start..end)
                    .step_by(max_rows)
                    .map(move |row| Task { rows: row..end.min(row + max_rows), matrix })
            })
            .collect()
    }

    fn matrix_len(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Whether there is enough work for several threads.
    fn pays(&self) -> bool {
        self.tables.blades * self.batch * self.matrix_len() >= parallel::WORTH
    }

    /// Rows per task: enough work to pay for scheduling and for packing the weights, small enough to share.
    fn rows_per_task(&self) -> usize {
        const FLOPS: usize = 1 << 21;
        (FLOPS / self.matrix_len().max(1)).clamp(64, 4096)
    }

    /// `out[b] = x[b]·weight[grade(b)]`, plus `bias` on the blades in `biased`.
    pub fn forward<T: Real>(
        &self,
        x: &[T],
        weights: &[T],
        bias: Option<(&[T], Range<usize>)>,
        out: &mut [T],
    ) {
        let n = self.outputs;
        if n == 0 {
            return;
        }
        let tasks = self.tasks(self.rows_per_task());
        split_rows(out, &tasks, n).into_par_iter().zip(&tasks).flushed_for_each_if(
            self.pays(),
            |(out, task)| {
                let a = Matrix::rows(&x[task.rows.start * self.inputs..], self.inputs);
                let b = Matrix::rows(&weights[task.matrix * self.matrix_len()..], n);
                gemm::product(gemm::Sizes { m: task.rows.len(), k: self.inputs, n }, a, b, out, false);
                if let Some((bias, blades)) = &bias {
                    let biased = blades.start * self.batch..blades.end * self.batch;
                    for (row, out) in task.rows.clone().zip(out.chunks_exact_mut(n)) {
                        if biased.contains(&row) {
                            for (out, &bias) in out.iter_mut().zip(*bias) {
                                *out += bias;
                            }
                        }
                    }
                }
            },
        );
    }

    /// `grad_x[b] = grad[b]·weight[grade(b)]ᵀ`.
    pub fn grad_input<T: Real>(&self, grad: &[T], weights: &[T], grad_x: &mut [T]) {
        if self.inputs == 0 {
            return;
        }
        let tasks = self.tasks(self.rows_per_task());
        split_rows(grad_x, &tasks, self.inputs).into_par_iter().zip(&tasks).flushed_for_each_if(
            self.pays(),
            |(out, task)| {
                let a = Matrix::rows(&grad[task.rows.start * self.outputs..], self.outputs);
                let b = Matrix::rows(&weights[task.matrix * self.matrix_len()..], self.outputs).transposed();
                gemm::product(
                    gemm::Sizes { m: task.rows.len(), k: self.outputs, n: self.inputs },
                    a,
                    b,
                    out,
                    false,
                );
            },
        );
    }

    /// Σ over rows of xᵀ·grad, for each matrix.
    pub fn grad_weights<T: Real>(&self, x: &[T], grad: &[T]) -> Vec<T> {
        // Partial sums over pieces of the rows, added pairwise. Large matrices get few pieces: their partial sums
        // cost more memory traffic than the parallelism is worth.
        const PARTIAL_ELEMENTS: usize = 1 << 20;
        let matrices = if self.shared { 1 } else { self.tables.blades_of_grade.len() };
        let rows = self.tables.blades * self.batch;
        let pieces = (PARTIAL_ELEMENTS / self.matrix_len().max(1)).clamp(4, 64);
        let tasks = self.tasks(rows.div_ceil(pieces).max(256));
        let partials: Vec<Vec<T>> = tasks.par_iter().flushed_map_if(self.pays(), |task| {
            let mut out = vec![T::zero(); self.matrix_len()];
            let a = Matrix::rows(&x[task.rows.start * self.inputs..], self.inputs).transposed();
            let b = Matrix::rows(&grad[task.rows.start * self.outputs..], self.outputs);
            gemm::product(
                gemm::Sizes { m: self.inputs, k: task.rows.len(), n: self.outputs },
                a,
                b,
                &mut out,
                false,
            );
            out
        });
        let mut by_matrix: Vec<Vec<Vec<T>>> = (0..matrices).map(|_| Vec::new()).collect();
        for (task, partial) in tasks.iter().zip(partials) {
            by_matrix[task.matrix].push(partial);
        }
        let zero = || vec![T::zero(); self.matrix_len()];
        let sums: Vec<Vec<T>> =
            by_matrix.into_iter().map(|partials| sum_partials(partials).unwrap_or_else(zero)).collect();
        sums.concat()
    }

    /// Σ over the rows of the blades in `biased` of `grad`.
    pub fn grad_bias<T: Real>(&self, grad: &[T], biased: Range<usize>) -> Vec<T> {
        let n = self.outputs;
        if n == 0 {
            return Vec::new();
        }
        const ROWS: usize = 64;
        let partials: Vec<Vec<T>> = grad[biased.start * self.batch * n..biased.end * self.batch * n]
            .par_chunks(ROWS * n)
            .flushed_map_if(self.pays(), |rows| {
                let mut sum = vec![T::zero(); n];
                for row in rows.chunks_exact(n) {
                    for (sum, &value) in sum.iter_mut().zip(row) {
                        *sum += value;
                    }
                }
                sum
            });
        sum_partials(partials).unwrap_or_else(|| vec![T::zero(); n])
    }
}

/// Cuts the rows of `data` (`columns` wide) into the tasks' ranges, which are adjacent and ascending.
fn split_rows<'a, T>(data: &'a mut [T], tasks: &[Task], columns: usize) -> Vec<&'a mut [T]> {
    let mut rest = data;
    tasks
        .iter()
        .map(|task| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(task.rows.len() * columns);
            rest = tail;
            head
        })
        .collect()
}
