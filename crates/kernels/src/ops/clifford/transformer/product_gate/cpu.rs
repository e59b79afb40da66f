//! Gates by products on the CPU, a channel or scalar at a time along the rows.

use super::{Options, Sizes};
use crate::{
    cpu::{parallel::Flushed, simd::Real},
    ops::clifford::transformer::{Order, activation::jet, chunks::chunks},
};
use rayon::prelude::*;

/// Rows of a chunk.
const CHUNK: usize = 256;

impl Sizes {
    /// The line of part `part` of a channel in the operand.
    const fn line(self, plane: usize, part: usize, channel: usize) -> usize {
        2 * self.scalars + (plane * 3 + part) * self.channels + channel
    }
}

fn factors<T: Real>(order: &Order) -> Vec<T> {
    order.factors().iter().map(|&factor| T::narrow(factor.into())).collect()
}

pub(super) fn forward<T: Real>(order: &Order, (sizes, options): (Sizes, Options), x: &[T], out: &mut [T]) {
    let (factors, half) = (factors::<T>(order), T::narrow(0.5));
    chunks(out, sizes.rows, CHUNK).into_par_iter().enumerate().flushed_for_each(|(chunk, mut lines)| {
        let at = |line: usize, row: usize| x[line * sizes.rows + chunk * CHUNK + row];
        for (s, line) in lines.iter_mut().enumerate().take(sizes.scalars) {
            for (row, out) in line.iter_mut().enumerate() {
                *out = jet(options.scalar_gate, at(sizes.scalars + s, row)).0 * at(s, row);
            }
        }
        for channel in 0..sizes.channels {
            let count = lines[sizes.scalars + channel].len();
            let gate = |row: usize| {
                let form = factors.iter().enumerate().fold(T::zero(), |form, (p, &factor)| {
                    form + factor * at(sizes.line(p, 1, channel), row) * at(sizes.line(p, 2, channel), row)
                });
                jet(options.gate, half * form).0
            };
            let gates: Vec<T> = (0..count).map(gate).collect();
            for p in 0..sizes.planes {
                let line = &mut lines[sizes.scalars + p * sizes.channels + channel];
                for (row, (out, &gate)) in line.iter_mut().zip(&gates).enumerate() {
                    *out = gate * at(sizes.line(p, 0, channel), row);
                }
            }
        }
    });
}

pub(super) fn backward<T: Real>(
    order: &Order,
    (sizes, options): (Sizes, Options),
    x: &[T],
    grad: &[T],
    out: &mut [T],
) {
    let (factors, half) = (factors::<T>(order), T::narrow(0.5));
    chunks(out, sizes.rows, CHUNK).into_par_iter().enumerate().flushed_for_each(|(chunk, mut lines)| {
        let at = |matrix: &[T], line: usize, row: usize| matrix[line * sizes.rows + chunk * CHUNK + row];
        for s in 0..sizes.scalars {
            for row in 0..lines[s].len() {
                let (value, slope) = jet(options.scalar_gate, at(x, sizes.scalars + s, row));
                let upstream = at(grad, s, row);
                lines[s][row] = value * upstream;
                lines[sizes.scalars + s][row] = slope * at(x, s, row) * upstream;
            }
        }
        for channel in 0..sizes.channels {
            let upstream = |p: usize, row: usize| at(grad, sizes.scalars + p * sizes.channels + channel, row);
            for row in 0..lines[sizes.line(0, 0, channel)].len() {
                let of = |p: usize, part: usize| at(x, sizes.line(p, part, channel), row);
                let (mut form, mut along) = (T::zero(), T::zero());
                for (p, &factor) in factors.iter().enumerate() {
                    form += factor * of(p, 1) * of(p, 2);
                    along += of(p, 0) * upstream(p, row);
                }
                let (gate, slope) = jet(options.gate, half * form);
                let of_form = half * slope * along;
                for (p, &factor) in factors.iter().enumerate() {
                    lines[sizes.line(p, 0, channel)][row] = gate * upstream(p, row);
                    lines[sizes.line(p, 1, channel)][row] = of_form * factor * of(p, 2);
                    lines[sizes.line(p, 2, channel)][row] = of_form * factor * of(p, 1);
                }
            }
        }
    });
}
