//! Spectra of real fields at the frequencies that are kept, by products with matrices of cosines and sines.

use super::prelude::*;
use gradewise_kernels::ops::fields::fourier::Modes;
use std::f64::consts::TAU;

/// Positions of adjacent axes that one matrix transforms together: a product with a larger matrix takes longer than two passes.
const TOGETHER: usize = 1024;

/// The spectra of a real field `x` `[I, batch, *space, channels]`, at the frequencies that `modes` keeps, with the exponent −2πi·kx/N:
/// `[I, batch, 2, volume, channels]`, real parts first. Without division.
///
/// # Errors
/// A shape that is not that of the modes.
pub fn analyse(x: &Tensor, modes: &[Modes]) -> Result<Tensor> {
    let &[blades, batch, .., channels] = x.shape().dims() else { return misfit(x, modes) };
    let (groups, mut rest) = (groups(modes), channels);
    let mut z = x.clone();
    for (at, group) in groups.iter().enumerate().rev() {
        let matrix = matrix(group, at == groups.len() - 1, x)?;
        let before = groups[..at].iter().map(|group| group.positions()).product::<usize>();
        // [blades, batch and positions before, positions and part, frequencies behind and channels].
        let z_rows = matrix.shape()[1];
        z = matrix.matmul(&z.reshape([blades * batch * before, z_rows, rest])?)?;
        rest *= group.frequencies();
    }
    z.reshape([blades, batch, 2, rest / channels, channels])
}

/// The real parts of the inverse transforms of `spectra` `[I, batch, 2, volume, channels]`, zero at all other frequencies: the field
/// `[I, batch, *space, channels]`. Without division; the transpose of [`analyse`].
///
/// # Errors
/// As [`analyse`].
pub fn synthesise(spectra: &Tensor, modes: &[Modes]) -> Result<Tensor> {
    let &[blades, batch, 2, volume, channels] = spectra.shape().dims() else { return misfit(spectra, modes) };
    let (groups, mut before, mut rest) = (groups(modes), blades * batch, volume * channels);
    let mut z = spectra.clone();
    for (at, group) in groups.iter().enumerate() {
        let matrix = matrix(group, at == groups.len() - 1, spectra)?;
        rest /= group.frequencies();
        let rows = z.reshape([before, matrix.shape()[0], rest])?;
        z = matrix.matmul_transposed(&rows, true, false)?;
        before *= group.positions();
    }
    let space = modes.iter().map(|axis| axis.size);
    z.reshape([blades, batch].into_iter().chain(space).chain([channels]).collect::<Vec<_>>())
}

fn misfit<T>(x: &Tensor, modes: &[Modes]) -> Result<T> {
    refuse("field_spectrum", format!("a tensor of shape {} does not have the modes {modes:?}", x.shape()))
}

/// Adjacent axes that one matrix transforms.
struct Group<'a>(&'a [Modes]);

impl Group<'_> {
    fn positions(&self) -> usize {
        self.0.iter().map(|axis| axis.size).product()
    }

    fn frequencies(&self) -> usize {
        self.0.iter().map(Modes::kept).product()
    }

    /// e^(−2πi·kx/N) for all frequencies k and positions x, by rows: cosines and sines.
    fn waves(&self) -> Vec<[f64; 2]> {
        let (mut turns, mut columns) = (vec![0.0], 1);
        for axis in self.0 {
            let frequencies: Vec<usize> = axis.frequencies().collect();
            let mut next = Vec::with_capacity(turns.len() * frequencies.len() * axis.size);
            for of_row in turns.chunks_exact(columns) {
                for k in &frequencies {
                    for turn in of_row {
                        // Reduced first, so that the angle is exact to rounding however large the grid.
                        let of_axis = |x| ((k * x) % axis.size) as f64 / axis.size as f64;
                        next.extend((0..axis.size).map(|x| turn + of_axis(x)));
                    }
                }
            }
            (turns, columns) = (next, columns * axis.size);
        }
        turns
            .iter()
            .map(|turn| (TAU * turn.fract()).sin_cos())
            .map(|(sine, cosine)| [cosine, -sine])
            .collect()
    }
}

/// As few groups as their sizes allow, the last ones the largest.
fn groups(modes: &[Modes]) -> Vec<Group<'_>> {
    let (mut groups, mut end) = (Vec::new(), modes.len());
    while end > 0 {
        let mut start = end - 1;
        let mut positions = modes[start].size;
        while start > 0 && positions * modes[start - 1].size <= TOGETHER {
            start -= 1;
            positions *= modes[start].size;
        }
        groups.push(Group(&modes[start..end]));
        end = start;
    }
    groups.reverse();
    groups
}

/// The matrix that transforms the axes of a group: rows are [part, frequency], columns positions of a real field or, of one that is complex
/// by then, [position, part].
fn matrix(group: &Group<'_>, is_real: bool, like: &Tensor) -> Result<Tensor> {
    let (positions, frequencies) = (group.positions(), group.frequencies());
    let columns = if is_real { positions } else { 2 * positions };
    let values = || {
        let waves = group.waves();
        let mut values = Vec::with_capacity(2 * frequencies * columns);
        for part in 0..2 {
            for &[cosine, sine] in &waves {
                match (is_real, part) {
                    (true, _) => values.push(if part == 0 { cosine } else { sine }),
                    // (a + ib)(cos + i·sin): the real part, then the imaginary one.
                    (false, 0) => values.extend([cosine, -sine]),
                    (false, _) => values.extend([sine, cosine]),
                }
            }
        }
        values
    };
    let axes = group.0.iter().flat_map(|axis| [axis.size, axis.low, axis.high].map(|size| size as u64));
    let arguments: Vec<u64> = [u64::from(is_real)].into_iter().chain(axes).collect();
    let shape = [2 * frequencies, columns];
    let made = Array::derived(("field_spectrum", &arguments), shape, like.dtype(), &like.device(), values)?;
    Ok(Tensor::new(made))
}
