//! Spectra of real fields at the frequencies that are kept, by products with matrices of cosines and sines.
//!
//! Axis by axis, the slowest first: everything behind an axis is then the columns of one product, which are many, and each axis leaves
//! less for the next.

use super::prelude::*;
use gradewise_kernels::ops::fields::fourier::Modes;
use std::f64::consts::TAU;

/// The spectra of a real field `x` `[I, batch, *space, channels]`, at the frequencies that `modes` keeps, with the exponent −2πi·kx/N:
/// `[I, batch, volume, 2, channels]`, real parts first. Without division.
///
/// # Errors
/// A shape that is not that of the modes.
pub fn analyse(x: &Tensor, modes: &[Modes]) -> Result<Tensor> {
    let &[blades, batch, .., channels] = x.shape().dims() else { return misfit(x, modes) };
    let (mut z, mut before) = (x.clone(), blades * batch);
    for (at, axis) in modes.iter().enumerate() {
        let matrix = matrix(axis, at == 0, x)?;
        let behind = modes[at + 1..].iter().map(|axis| axis.size).product::<usize>() * channels;
        // [before, part and position, behind] → [before, frequency and part, behind].
        z = matrix.matmul(&z.reshape([before, matrix.shape()[1], behind])?)?;
        before *= axis.kept();
    }
    let volume = modes.iter().map(Modes::kept).product();
    z.reshape([blades, batch, volume, 2, channels])
}

/// The real parts of the inverse transforms of `spectra` `[I, batch, volume, 2, channels]`, zero at all other frequencies: the field
/// `[I, batch, *space, channels]`. Without division; the transpose of [`analyse`].
///
/// # Errors
/// As [`analyse`].
pub fn synthesise(spectra: &Tensor, modes: &[Modes]) -> Result<Tensor> {
    let &[blades, batch, _, 2, channels] = spectra.shape().dims() else { return misfit(spectra, modes) };
    let (mut z, mut behind) = (spectra.clone(), channels);
    for (at, axis) in modes.iter().enumerate().rev() {
        let matrix = matrix(axis, at == 0, spectra)?;
        let before = blades * batch * modes[..at].iter().map(Modes::kept).product::<usize>();
        let rows = z.reshape([before, matrix.shape()[0], behind])?;
        z = matrix.matmul_transposed(&rows, true, false)?;
        behind *= axis.size;
    }
    let space = modes.iter().map(|axis| axis.size);
    z.reshape([blades, batch].into_iter().chain(space).chain([channels]).collect::<Vec<_>>())
}

fn misfit<T>(x: &Tensor, modes: &[Modes]) -> Result<T> {
    refuse("field_spectrum", format!("a tensor of shape {} does not have the modes {modes:?}", x.shape()))
}

/// The matrix that transforms an axis: rows are [frequency, part], columns positions of a real field or, of one that is complex by then,
/// [part, position].
fn matrix(axis: &Modes, is_real: bool, like: &Tensor) -> Result<Tensor> {
    let parts = if is_real { 1 } else { 2 };
    let values = || {
        let mut values = Vec::with_capacity(2 * axis.kept() * parts * axis.size);
        for k in axis.frequencies() {
            // e^(−2πi·kx/N). Reduced first, so that the angle is exact to rounding however large the grid.
            let waves = |x: usize| (TAU * ((k * x) % axis.size) as f64 / axis.size as f64).sin_cos();
            let (cosines, sines) =
                (|| (0..axis.size).map(|x| waves(x).1), || (0..axis.size).map(|x| -waves(x).0));
            // (a + ib)(cos + i·sin): the real part, then the imaginary one.
            values.extend(cosines());
            if !is_real {
                values.extend(sines().map(|sine| -sine));
            }
            values.extend(sines());
            if !is_real {
                values.extend(cosines());
            }
        }
        values
    };
    let arguments = [parts, axis.size, axis.low, axis.high].map(|size| size as u64);
    let shape = [2 * axis.kept(), parts * axis.size];
    let made = Array::derived(("field_spectrum", &arguments), shape, like.dtype(), &like.device(), values)?;
    Ok(Tensor::new(made))
}
