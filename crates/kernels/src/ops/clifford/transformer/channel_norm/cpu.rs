//! Normalisation and gates of feature planes on the CPU. A chunk of rows stays in cache; its inner loops run along the rows.

use super::{Norm, Operands, Options, Sizes};
use crate::{
    Result,
    cpu::{parallel::Flushed, simd::Real},
    ops::clifford::transformer::{Order, activation::jet as activation, chunks::chunks},
};
use rayon::prelude::*;

/// Rows of a chunk.
const CHUNK: usize = 64;
/// Added to the variance of scalars.
const SCALAR_EPSILON: f64 = 1e-5;

/// Numbers of the rows of a chunk.
type Lane<T> = [T; CHUNK];

/// Operands of the norm and the gates.
pub(super) struct Work<'a, T> {
    by_grade: Vec<Vec<usize>>,
    factors: Vec<T>,
    sizes: Sizes,
    options: Options,
    x: &'a [T],
    gains: Option<&'a [T]>,
    scalar_gains: Option<&'a [T]>,
}

/// What the rows of a chunk are multiplied by.
struct Scales<T> {
    scale: Lane<T>,
    mean: Lane<T>,
    scalar_mean: Lane<T>,
    scalar_inverse: Lane<T>,
}

impl<'a, T: Real> Work<'a, T> {
    pub fn new(order: &Order, sizes: Sizes, operands: &Operands<'a>, options: Options) -> Result<Self> {
        let values = |array: Option<&'a crate::Array>| array.map(crate::Array::as_slice::<T>).transpose();
        Ok(Self {
            by_grade: order.by_grade(),
            factors: order.factors().iter().map(|&factor| T::narrow(factor.into())).collect(),
            sizes,
            options,
            x: operands.x.as_slice()?,
            gains: values(operands.gains)?,
            scalar_gains: values(operands.scalar_gains)?,
        })
    }

    /// The place of a channel of a plane among the rows of the matrix.
    fn place(&self, plane: usize, channel: usize) -> usize {
        self.sizes.scalars + plane * self.sizes.channels + channel
    }

    fn gain(&self, channel: usize, grade: usize) -> T {
        self.gains.map_or(T::one(), |gains| gains[channel * self.by_grade.len() + grade])
    }

    fn scalar_gain(&self, scalar: usize) -> T {
        self.scalar_gains.map_or(T::one(), |gains| gains[scalar])
    }

    /// The numbers of a chunk in one row of a matrix.
    fn lane<'b>(&self, matrix: &'b [T], place: usize, start: usize, count: usize) -> &'b [T] {
        let from = place * self.sizes.rows + start;
        &matrix[from..from + count]
    }

    fn quadratic(&self, grade: usize, channel: usize, start: usize, count: usize) -> Lane<T> {
        let mut form = [T::zero(); CHUNK];
        for &plane in &self.by_grade[grade] {
            let factor = self.factors[plane];
            for (form, &x) in form.iter_mut().zip(self.lane(self.x, self.place(plane, channel), start, count))
            {
                *form += factor * x * x;
            }
        }
        form
    }

    fn scales(&self, start: usize, count: usize) -> Scales<T> {
        let Sizes { scalars, channels, .. } = self.sizes;
        let (ones, zeros) = ([T::one(); CHUNK], [T::zero(); CHUNK]);
        let mut found = Scales { scale: ones, mean: zeros, scalar_mean: zeros, scalar_inverse: ones };
        let Some(Norm { epsilon, gain }) = self.options.norm else { return found };
        for channel in 0..channels {
            for grade in 0..self.by_grade.len() {
                let form = self.quadratic(grade, channel, start, count);
                found.mean.iter_mut().zip(&form).for_each(|(mean, form)| *mean += form.abs());
            }
        }
        let (count_of, least) = (T::narrow(channels.max(1) as f64), T::narrow(epsilon));
        for (scale, mean) in found.scale.iter_mut().zip(&mut found.mean) {
            *mean /= count_of;
            // NaN stays NaN.
            *scale = T::narrow(gain) / if *mean < least { least } else { *mean }.sqrt();
        }
        if scalars > 0 {
            let count_of = T::narrow(scalars as f64);
            for s in 0..scalars {
                let values = self.lane(self.x, s, start, count);
                found.scalar_mean.iter_mut().zip(values).for_each(|(mean, &x)| *mean += x);
            }
            found.scalar_mean.iter_mut().for_each(|mean| *mean /= count_of);
            let mut variance = zeros;
            for s in 0..scalars {
                let values = self.lane(self.x, s, start, count);
                for ((variance, &x), &mean) in variance.iter_mut().zip(values).zip(&found.scalar_mean) {
                    *variance += (x - mean) * (x - mean);
                }
            }
            for (inverse, variance) in found.scalar_inverse.iter_mut().zip(variance) {
                *inverse = T::one() / (variance / count_of + T::narrow(SCALAR_EPSILON)).sqrt();
            }
        }
        found
    }

    pub fn forward(&self, out: &mut [T]) {
        let chunks = chunks(out, self.sizes.rows, CHUNK);
        chunks.into_par_iter().enumerate().flushed_for_each(|(chunk, mut lines)| {
            let (start, count) = (chunk * CHUNK, lines.first().map_or(0, |line| line.len()));
            let by = self.scales(start, count);
            for (s, line) in lines.iter_mut().enumerate().take(self.sizes.scalars) {
                let (gain, values) = (self.scalar_gain(s), self.lane(self.x, s, start, count));
                for (row, (out, &x)) in line.iter_mut().zip(values).enumerate() {
                    let value = (x - by.scalar_mean[row]) * by.scalar_inverse[row] * gain;
                    *out = self.options.scalar_gate.map_or(value, |kind| activation(kind, value).0);
                }
            }
            for channel in 0..self.sizes.channels {
                let mut factor = by.scale;
                if let Some(kind) = self.options.gate {
                    let (gain, scalar) =
                        (self.gain(channel, 0), self.lane(self.x, self.place(0, channel), start, count));
                    for (factor, &x) in factor.iter_mut().zip(scalar) {
                        *factor *= activation(kind, x * *factor * gain).0;
                    }
                }
                for (grade, planes) in self.by_grade.iter().enumerate() {
                    let gain = self.gain(channel, grade);
                    for &plane in planes {
                        let place = self.place(plane, channel);
                        let values = self.lane(self.x, place, start, count);
                        for ((out, &x), &factor) in lines[place].iter_mut().zip(values).zip(&factor) {
                            *out = x * (factor * gain);
                        }
                    }
                }
            }
        });
    }

    /// Writes the gradient of x, and returns those of the gains, by channel and grade, and of the scalars' gains.
    pub fn backward(&self, grad: &[T], out: &mut [T]) -> Vec<T> {
        let results = self.sizes.channels * self.by_grade.len() + self.sizes.scalars;
        let chunks = chunks(out, self.sizes.rows, CHUNK);
        let partials: Vec<Vec<T>> = chunks
            .into_par_iter()
            .enumerate()
            .flushed_map(|(chunk, lines)| self.backward_chunk(chunk, grad, lines));
        let mut sums = vec![T::zero(); results];
        for partial in partials {
            sums.iter_mut().zip(partial).for_each(|(sum, part)| *sum += part);
        }
        sums
    }

    /// The gate of a channel, what is added to the gradient of its argument, and Σ gain·x·grad after the gate.
    fn gate(&self, grad: &[T], by: &Scales<T>, channel: usize, start: usize, count: usize) -> [Lane<T>; 3] {
        let (mut value, mut added, mut dot) = ([T::one(); CHUNK], [T::zero(); CHUNK], [T::zero(); CHUNK]);
        for (grade, planes) in self.by_grade.iter().enumerate() {
            let gain = self.gain(channel, grade);
            for &plane in planes {
                let place = self.place(plane, channel);
                let (x, g) = (self.lane(self.x, place, start, count), self.lane(grad, place, start, count));
                dot.iter_mut().zip(x.iter().zip(g)).for_each(|(dot, (&x, &g))| *dot += gain * x * g);
            }
        }
        if let Some(kind) = self.options.gate {
            let (gain, scalar) =
                (self.gain(channel, 0), self.lane(self.x, self.place(0, channel), start, count));
            for (row, &x) in scalar.iter().enumerate() {
                let first = x * gain;
                let (at, slope) = activation(kind, by.scale[row] * first);
                value[row] = at;
                added[row] = slope * by.scale[row] * dot[row];
                dot[row] = at * dot[row] + added[row] * first;
            }
        }
        [value, added, dot]
    }

    fn backward_chunk(&self, chunk: usize, grad: &[T], mut lines: Vec<&mut [T]>) -> Vec<T> {
        let Sizes { scalars, channels, .. } = self.sizes;
        let (start, count) = (chunk * CHUNK, lines.first().map_or(0, |line| line.len()));
        let grades = self.by_grade.len();
        let mut sums = vec![T::zero(); channels * grades + scalars];
        let by = self.scales(start, count);
        let mut through_mean = [T::zero(); CHUNK];
        if let Some(Norm { epsilon, .. }) = self.options.norm {
            let mut total = [T::zero(); CHUNK];
            for channel in 0..channels {
                let [.., dot] = self.gate(grad, &by, channel, start, count);
                total.iter_mut().zip(dot).for_each(|(total, dot)| *total += dot);
            }
            for row in 0..count {
                if by.mean[row] < T::narrow(epsilon) {
                    continue;
                }
                through_mean[row] = -total[row] * by.scale[row] / (by.mean[row] * T::narrow(channels as f64));
            }
        }
        for channel in 0..channels {
            let [value, added, _] = self.gate(grad, &by, channel, start, count);
            for (grade, planes) in self.by_grade.iter().enumerate() {
                let mut slope = [T::zero(); CHUNK];
                if self.options.norm.is_some() {
                    let form = self.quadratic(grade, channel, start, count);
                    for (slope, (form, through)) in slope.iter_mut().zip(form.iter().zip(&through_mean)) {
                        if *form != T::zero() {
                            *slope = *through * form.signum();
                        }
                    }
                }
                let gain = self.gain(channel, grade);
                for &plane in planes {
                    let place = self.place(plane, channel);
                    let (x, g) =
                        (self.lane(self.x, place, start, count), self.lane(grad, place, start, count));
                    for row in 0..count {
                        let through = g[row] * value[row] + if plane == 0 { added[row] } else { T::zero() };
                        sums[channel * grades + grade] += through * x[row] * by.scale[row];
                        lines[place][row] =
                            through * by.scale[row] * gain + slope[row] * self.factors[plane] * x[row];
                    }
                }
            }
        }
        self.backward_scalars(grad, &by, (start, count), &mut lines, &mut sums[channels * grades..]);
        sums
    }

    fn backward_scalars(
        &self,
        grad: &[T],
        by: &Scales<T>,
        (start, count): (usize, usize),
        lines: &mut [&mut [T]],
        sums: &mut [T],
    ) {
        let scalars = self.sizes.scalars;
        let (mut mean, mut along) = ([T::zero(); CHUNK], [T::zero(); CHUNK]);
        let at = |s: usize, row: usize| {
            let (x, g) = (self.lane(self.x, s, start, count)[row], self.lane(grad, s, start, count)[row]);
            let normal = (x - by.scalar_mean[row]) * by.scalar_inverse[row];
            let slope = |kind| activation(kind, normal * self.scalar_gain(s)).1;
            (normal, g * self.options.scalar_gate.map_or(T::one(), slope))
        };
        if self.options.norm.is_some() {
            for s in 0..scalars {
                for row in 0..count {
                    let (normal, through) = at(s, row);
                    mean[row] += through * self.scalar_gain(s) / T::narrow(scalars as f64);
                    along[row] += through * self.scalar_gain(s) * normal / T::narrow(scalars as f64);
                }
            }
        }
        for s in 0..scalars {
            for row in 0..count {
                let (normal, through) = at(s, row);
                sums[s] += through * normal;
                lines[s][row] = by.scalar_inverse[row]
                    * (through * self.scalar_gain(s) - mean[row] - normal * along[row]);
            }
        }
    }
}
