//! The norm of vectors and scalars together on the CPU. A chunk of rows stays in cache; its inner loops run along the rows.

use super::{Operands, Sizes};
use crate::{
    Array, Result,
    cpu::{parallel::Flushed, simd::Real},
    ops::clifford::transformer::{Order, chunks::chunks},
};
use rayon::prelude::*;

/// Rows of a chunk.
const CHUNK: usize = 64;

/// Numbers of the rows of a chunk.
type Lane<T> = [T; CHUNK];

/// A vector or a scalar of a set: its number among the gains, and its lines, with the factors of their squares.
struct Part<T> {
    gain: usize,
    lines: Vec<(usize, T)>,
}

/// Operands of the norm.
pub(super) struct Work<'a, T> {
    sets: Vec<Vec<Part<T>>>,
    sizes: Sizes,
    epsilon: T,
    x: &'a [T],
    gains: Option<&'a [T]>,
    scalar_gains: Option<&'a [T]>,
}

impl<'a, T: Real> Work<'a, T> {
    pub fn new(order: &Order, sizes: Sizes, epsilon: f64, operands: &Operands<'a>) -> Result<Self> {
        let values = |array: Option<&'a Array>| array.map(Array::as_slice::<T>).transpose();
        let factors: Vec<T> = order.factors().iter().map(|&factor| T::narrow(factor.into())).collect();
        let [plane, scalars] = sizes.lines();
        let part = |set: usize, index: usize| {
            let (g, h) = (set / sizes.heads, set % sizes.heads);
            let Some(s) = index.checked_sub(sizes.channels) else {
                let channel = (g * sizes.channels + index) * sizes.heads + h;
                let lines =
                    factors.iter().enumerate().map(|(p, &factor)| (scalars + p * plane + channel, factor));
                return Part { gain: channel, lines: lines.collect() };
            };
            let line = (g * sizes.scalars + s) * sizes.heads + h;
            Part { gain: plane + line, lines: vec![(line, T::one())] }
        };
        let set = |set: usize| (0..sizes.channels + sizes.scalars).map(|index| part(set, index)).collect();
        Ok(Self {
            sets: (0..sizes.sets()).map(set).collect(),
            sizes,
            epsilon: T::narrow(epsilon),
            x: operands.x.as_slice()?,
            gains: values(operands.gains)?,
            scalar_gains: values(operands.scalar_gains)?,
        })
    }

    fn gain(&self, number: usize) -> T {
        let [plane, _] = self.sizes.lines();
        match number.checked_sub(plane) {
            None => self.gains.map_or(T::one(), |gains| gains[number]),
            Some(scalar) => self.scalar_gains.map_or(T::one(), |gains| gains[scalar]),
        }
    }

    /// The numbers of a chunk in one line of a matrix.
    fn lane<'b>(&self, matrix: &'b [T], line: usize, start: usize, count: usize) -> &'b [T] {
        let from = line * self.sizes.rows + start;
        &matrix[from..from + count]
    }

    fn quadratic(&self, part: &Part<T>, start: usize, count: usize) -> Lane<T> {
        let mut form = [T::zero(); CHUNK];
        for &(line, factor) in &part.lines {
            let values = self.lane(self.x, line, start, count);
            form.iter_mut().zip(values).for_each(|(form, &x)| *form += factor * x * x);
        }
        form
    }

    /// What the rows of a set are multiplied by.
    fn scale(&self, set: &[Part<T>], start: usize, count: usize) -> Lane<T> {
        let mut mean = [T::zero(); CHUNK];
        for part in set {
            let form = self.quadratic(part, start, count);
            mean.iter_mut().zip(form).for_each(|(mean, form)| *mean += form.abs());
        }
        mean.map(|mean| T::one() / (mean / T::narrow(set.len() as f64) + self.epsilon).sqrt())
    }

    pub fn forward(&self, out: &mut [T]) {
        let chunks = chunks(out, self.sizes.rows, CHUNK);
        chunks.into_par_iter().enumerate().flushed_for_each(|(chunk, mut lines)| {
            let (start, count) = (chunk * CHUNK, lines.first().map_or(0, |line| line.len()));
            for set in &self.sets {
                let scale = self.scale(set, start, count);
                for part in set {
                    let gain = self.gain(part.gain);
                    for &(line, _) in &part.lines {
                        let values = self.lane(self.x, line, start, count);
                        for ((out, &x), &scale) in lines[line].iter_mut().zip(values).zip(&scale) {
                            *out = x * (scale * gain);
                        }
                    }
                }
            }
        });
    }

    /// Writes the gradient of x, and returns those of the gains and of the scalars' gains.
    pub fn backward(&self, grad: &[T], out: &mut [T]) -> Vec<T> {
        let chunks = chunks(out, self.sizes.rows, CHUNK);
        let partials: Vec<Vec<T>> = chunks
            .into_par_iter()
            .enumerate()
            .flushed_map(|(chunk, lines)| self.backward_chunk(chunk, grad, lines));
        let mut sums = vec![T::zero(); self.sizes.lines().iter().sum()];
        for partial in partials {
            sums.iter_mut().zip(partial).for_each(|(sum, part)| *sum += part);
        }
        sums
    }

    /// With r = 1/√(m + ε), n vectors and scalars in a set and D = Σ gain·grad·x, an element has the gradient r·gain·grad −
    /// (r³·D/n)·sign(q)·factor·x.
    fn backward_chunk(&self, chunk: usize, grad: &[T], mut lines: Vec<&mut [T]>) -> Vec<T> {
        let (start, count) = (chunk * CHUNK, lines.first().map_or(0, |line| line.len()));
        let mut sums = vec![T::zero(); self.sizes.lines().iter().sum()];
        for set in &self.sets {
            let scale = self.scale(set, start, count);
            let mut pull = [T::zero(); CHUNK];
            for part in set {
                let gain = self.gain(part.gain);
                for &(line, _) in &part.lines {
                    let (x, g) = (self.lane(self.x, line, start, count), self.lane(grad, line, start, count));
                    for row in 0..count {
                        let dot = x[row] * g[row];
                        pull[row] += gain * dot;
                        sums[part.gain] += dot * scale[row];
                    }
                }
            }
            let share = T::one() / T::narrow(set.len() as f64);
            for (pull, scale) in pull.iter_mut().zip(scale) {
                *pull *= scale * scale * scale * share;
            }
            for part in set {
                let (gain, form) = (self.gain(part.gain), self.quadratic(part, start, count));
                for &(line, factor) in &part.lines {
                    let (x, g) = (self.lane(self.x, line, start, count), self.lane(grad, line, start, count));
                    for row in 0..count {
                        let sign = if form[row] == T::zero() { T::zero() } else { form[row].signum() };
                        lines[line][row] = scale[row] * gain * g[row] - pull[row] * sign * factor * x[row];
                    }
                }
            }
        }
        sums
    }
}
