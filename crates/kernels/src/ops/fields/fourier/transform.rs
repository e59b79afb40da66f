//! The transforms of rows and channels, one line after the other, by `rustfft`.

use super::{Face, Modes, NAME, Sign};
use crate::{
    Array, Result,
    cpu::{parallel::Flushed, simd::Real},
    ops::clifford::algebra::contract::with_real,
};
use gradewise_core::Shape;
use rayon::prelude::*;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner, num_complex::Complex};
use std::sync::Arc;

/// The transform of `z`, whose extents of space are `from`, to `shape`.
pub(super) fn run(
    z: &Array,
    modes: &[Modes],
    sign: Sign,
    face: Face,
    from: Vec<usize>,
    shape: Vec<usize>,
) -> Result<Array> {
    let z = z.contiguous()?;
    with_real!(z.dtype(), NAME, T => {
        let values = z.as_slice::<T>()?;
        let shape = Shape::from(shape);
        Array::build::<T>(shape.clone(), &z.device(), |out| {
            Transform::<T>::new(modes, sign, face, from).run(values, &shape, out);
        })
    })
}

/// The plan of a line of `size` numbers.
pub fn plan(size: usize, direction: FftDirection) -> Arc<dyn Fft<f64>> {
    FftPlanner::new().plan_fft(size, direction)
}

struct Transform<'a, T: FftNum> {
    modes: &'a [Modes],
    face: Face,
    plans: Vec<Arc<dyn Fft<T>>>,
    /// Extents of what is read.
    from: Vec<usize>,
}

impl<'a, T: Real + FftNum> Transform<'a, T> {
    fn new(modes: &'a [Modes], sign: Sign, face: Face, from: Vec<usize>) -> Self {
        let mut planner = FftPlanner::new();
        let direction = match sign {
            Sign::Minus => FftDirection::Forward,
            Sign::Plus => FftDirection::Inverse,
        };
        let plans = modes.iter().map(|axis| planner.plan_fft(axis.size, direction)).collect();
        Self { modes, face, plans, from }
    }

    /// Transforms row by row, a few channels at a time: those of one cache line.
    fn run(&self, values: &[T], shape: &Shape, out: &mut [T]) {
        const AT_ONCE: usize = 16;
        let (rows, channels) = (shape[1], shape[shape.rank() - 1]);
        let volume: usize = self.from.iter().product();
        let extents = &shape[2..shape.rank() - 1];
        let out_plane = extents.iter().product::<usize>() * channels;
        if out.is_empty() {
            return;
        }
        if volume == 0 {
            out.fill(T::zero());
            return;
        }
        let plane = volume * channels;
        let (real, imaginary) = out.split_at_mut(rows * out_plane);
        let parts = real.par_chunks_mut(out_plane).zip(imaginary.par_chunks_mut(out_plane)).enumerate();
        parts.flushed_for_each(|(row, (out_real, out_imaginary))| {
            let (real, imaginary) =
                (&values[row * plane..][..plane], &values[(rows + row) * plane..][..plane]);
            let mut scratch = Vec::new();
            for first in (0..channels).step_by(AT_ONCE) {
                for channel in first..channels.min(first + AT_ONCE) {
                    let at = |position: usize| position * channels + channel;
                    let field = (0..volume).map(|p| Complex::new(real[at(p)], imaginary[at(p)])).collect();
                    for (position, value) in self.of_channel(field, &mut scratch).iter().enumerate() {
                        out_real[at(position)] = value.re;
                        out_imaginary[at(position)] = value.im;
                    }
                }
            }
        });
    }

    /// The transform of one field, axis by axis from the last. Cropping shrinks the field as it goes, extending lets it grow.
    fn of_channel(&self, mut field: Vec<Complex<T>>, scratch: &mut Vec<Complex<T>>) -> Vec<Complex<T>> {
        let mut extents = self.from.clone();
        let zero = Complex::new(T::zero(), T::zero());
        for (axis, (modes, plan)) in self.modes.iter().zip(&self.plans).enumerate().rev() {
            let after: usize = extents[axis + 1..].iter().product();
            let (from, to) = match self.face {
                Face::Crop => (modes.size, modes.kept()),
                Face::Extend => (modes.kept(), modes.size),
            };
            let before: usize = extents[..axis].iter().product();
            let mut next = vec![zero; before * to * after];
            let mut line = vec![zero; modes.size];
            scratch.resize(plan.get_inplace_scratch_len().max(scratch.len()), zero);
            for lead in 0..before {
                for tail in 0..after {
                    let read = |index: usize| field[(lead * from + index) * after + tail];
                    match self.face {
                        Face::Crop => (0..from).for_each(|index| line[index] = read(index)),
                        Face::Extend => {
                            line.fill(zero);
                            modes.frequencies().enumerate().for_each(|(index, at)| line[at] = read(index));
                        }
                    }
                    plan.process_with_scratch(&mut line, scratch);
                    let mut write = |index: usize, value| next[(lead * to + index) * after + tail] = value;
                    match self.face {
                        Face::Crop => {
                            modes.frequencies().enumerate().for_each(|(index, at)| write(index, line[at]));
                        }
                        Face::Extend => {
                            line.iter().enumerate().for_each(|(index, &value)| write(index, value))
                        }
                    }
                }
            }
            extents[axis] = to;
            field = next;
        }
        field
    }
}
