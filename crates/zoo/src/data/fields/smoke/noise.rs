//! The initial smoke of simulations: smooth noise, as PhiFlow's `Noise(scale=11, smoothness=6)` makes it.

use crate::data::numpy::RandomState;
use gradewise_kernels::ops::fields::fourier::plan;
use rustfft::{FftDirection, num_complex::Complex};

/// The noise scale over the side of the box: frequencies are in units of 1/scale.
const SCALE_OVER_SIDE: f64 = 11.0 / 32.0;
/// Frequencies with k² up to this are left out.
const LOWEST: f64 = 0.1;
/// The spectrum falls as (1/k²) to this power.
const SMOOTHNESS: i32 = 6;

/// Smooth noise `[n, n]` of standard deviation 1 and mean 0: nearly all of its power is in the lowest frequencies.
pub(super) fn smooth_noise(random: &mut RandomState, n: usize) -> Vec<f64> {
    // Drawn in double precision and rounded to single, as in PhiFlow.
    let mut draw = || -> Vec<f64> { (0..n * n).map(|_| f64::from(random.normal() as f32)).collect() };
    let (real, imaginary) = (draw(), draw());
    let frequency = |index: usize| {
        let signed = if 2 * index < n { index as f64 } else { index as f64 - n as f64 };
        signed * SCALE_OVER_SIDE
    };
    let mut spectrum: Vec<Complex<f64>> = (0..n * n)
        .map(|at| {
            let square = frequency(at / n).powi(2) + frequency(at % n).powi(2);
            let weight = if square > LOWEST { square.powi(-SMOOTHNESS) } else { 0.0 };
            Complex::new(real[at], imaginary[at]) * weight
        })
        .collect();
    let inverse = plan(n, FftDirection::Inverse);
    for _ in 0..2 {
        spectrum.chunks_exact_mut(n).for_each(|row| inverse.process(row));
        let transposed = (0..n * n).map(|at| spectrum[at % n * n + at / n]).collect();
        spectrum = transposed;
    }
    // No normalising factor is needed: the result is divided by its standard deviation and then centred.
    let noise: Vec<f64> = spectrum.iter().map(|value| value.re).collect();
    let count = (n * n) as f64;
    let mean = noise.iter().sum::<f64>() / count;
    let variance = noise.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    noise.iter().map(|value| (value - mean) / variance.sqrt()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from PhiFlow 2.1, which computes in single precision.
    #[test]
    fn noise_is_that_of_the_published_generator() {
        let noise = smooth_noise(&mut RandomState::new(5), 128);
        for (at, expected) in [(0, -1.8023431), (10 * 128 + 20, -1.8088306), (64 * 128 + 64, 1.7979169)] {
            assert!((noise[at] - expected).abs() < 1e-6, "{} {expected}", noise[at]);
        }
    }
}
