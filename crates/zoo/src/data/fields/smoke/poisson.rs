//! The Poisson equation of the projection, solved exactly by transforms.

use gradewise_kernels::ops::fields::fourier::plan;
use rustfft::{Fft, FftDirection, num_complex::Complex};
use std::{f64::consts::PI, sync::Arc};

/// The boundary conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// No-slip walls, as in the published data.
    Walls,
    /// Periodic boundaries.
    Periodic,
}

/// Solves the five-point Poisson equation on `n` × `n` cells: with Neumann conditions by the type-II cosine transform, with periodic ones
/// by the Fourier transform. The solution has mean 0; the mean of the right-hand side is ignored.
#[derive(Clone)]
pub(super) struct Poisson {
    boundary: Boundary,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    /// e^(−iπk/2n), the factors that relate the Fourier and the cosine transform.
    half_turns: Vec<Complex<f64>>,
    /// Eigenvalues of the second difference along one axis, for spacing 1.
    eigenvalues: Vec<f64>,
}

impl Poisson {
    pub fn new(n: usize, boundary: Boundary) -> Self {
        let angle = |k: usize| match boundary {
            Boundary::Walls => PI * k as f64 / n as f64,
            Boundary::Periodic => 2.0 * PI * k as f64 / n as f64,
        };
        // 2 cos θ − 2 without the cancellation of small θ.
        let eigenvalue = |k: usize| -4.0 * (angle(k) / 2.0).sin().powi(2);
        Self {
            boundary,
            forward: plan(n, FftDirection::Forward),
            inverse: plan(n, FftDirection::Inverse),
            half_turns: (0..n).map(|k| Complex::from_polar(1.0, -PI * k as f64 / (2 * n) as f64)).collect(),
            eigenvalues: (0..n).map(eigenvalue).collect(),
        }
    }

    /// p with Δp = `right` for spacing `dx`.
    pub fn solve(&self, right: &[f64], dx: f64) -> Vec<f64> {
        let n = self.eigenvalues.len();
        let mut field: Vec<Complex<f64>> = right.iter().map(|&value| Complex::new(value, 0.0)).collect();
        for _ in 0..2 {
            field.chunks_exact_mut(n).for_each(|row| self.transform(row));
            transpose(&mut field, n);
        }
        for (at, value) in field.iter_mut().enumerate() {
            let eigenvalue = self.eigenvalues[at / n] + self.eigenvalues[at % n];
            *value = if at == 0 { Complex::default() } else { *value * (dx * dx / eigenvalue) };
        }
        for _ in 0..2 {
            field.chunks_exact_mut(n).for_each(|row| self.inverse(row));
            transpose(&mut field, n);
        }
        field.iter().map(|value| value.re).collect()
    }

    fn transform(&self, row: &mut [Complex<f64>]) {
        match self.boundary {
            Boundary::Periodic => self.forward.process(row),
            // Σ x cos(πk(2j + 1)/2n) by one Fourier transform of the same length (Makhoul 1980): of a real row, evens before odds reversed.
            Boundary::Walls => {
                let n = row.len();
                let mut order: Vec<Complex<f64>> = row.iter().step_by(2).copied().collect();
                order.extend(row.iter().skip(1).step_by(2).rev());
                self.forward.process(&mut order);
                for k in 0..n {
                    row[k] = Complex::new((self.half_turns[k] * order[k]).re, 0.0);
                }
            }
        }
    }

    fn inverse(&self, row: &mut [Complex<f64>]) {
        let n = row.len();
        match self.boundary {
            Boundary::Periodic => {
                self.inverse.process(row);
                row.iter_mut().for_each(|value| *value /= n as f64);
            }
            Boundary::Walls => {
                let mirrored = |k: usize| if k == 0 { 0.0 } else { row[n - k].re };
                let mut order: Vec<Complex<f64>> = (0..n)
                    .map(|k| self.half_turns[k].conj() * Complex::new(row[k].re, -mirrored(k)) / n as f64)
                    .collect();
                self.inverse.process(&mut order);
                for (at, value) in order.into_iter().enumerate() {
                    let place = if 2 * at < n { 2 * at } else { 2 * (n - 1 - at) + 1 };
                    row[place] = Complex::new(value.re, 0.0);
                }
            }
        }
    }
}

fn transpose(field: &mut [Complex<f64>], n: usize) {
    for i in 0..n {
        for j in 0..i {
            field.swap(i * n + j, j * n + i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_differences_of_a_solution_are_the_right_hand_side() {
        for boundary in [Boundary::Walls, Boundary::Periodic] {
            for n in [1, 2, 5, 8, 12] {
                let mut right: Vec<f64> = (0..n * n).map(|at| ((at * at) as f64 * 0.37).sin()).collect();
                let mean = right.iter().sum::<f64>() / (n * n) as f64;
                right.iter_mut().for_each(|value| *value -= mean);
                let p = Poisson::new(n, boundary).solve(&right, 0.5);
                let at = |i: isize, j: isize| {
                    let inside = |index: isize| match boundary {
                        Boundary::Walls => index.clamp(0, n as isize - 1) as usize,
                        Boundary::Periodic => index.rem_euclid(n as isize) as usize,
                    };
                    p[inside(i) * n + inside(j)]
                };
                for (k, &right) in right.iter().enumerate() {
                    let (i, j) = ((k / n) as isize, (k % n) as isize);
                    let sum = at(i + 1, j) + at(i - 1, j) + at(i, j + 1) + at(i, j - 1) - 4.0 * at(i, j);
                    assert!((sum / 0.25 - right).abs() < 1e-13, "{boundary:?} {n}");
                }
            }
        }
    }
}
