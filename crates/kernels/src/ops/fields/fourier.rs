//! The discrete Fourier transform of complex fields, truncated to low frequencies.
//!
//! A complex field is `[2, rows, *space, channels]`: real parts, then imaginary parts. [`crop`] transforms and keeps some frequencies,
//! [`extend`] puts zeros where frequencies are missing and transforms; neither divides. Each is the adjoint of the other with the
//! opposite sign, so that they are closed under differentiation.

#[cfg(feature = "fourier")]
mod transform;
/// `rustfft`'s plan of a line of `f64`, for crates above: planners are generic, and each crate that made one would compile them again.
#[cfg(feature = "fourier")]
#[doc(hidden)]
pub use transform::plan;

use crate::ops::clifford::algebra::contract::exact;
use crate::{Array, Device, Error, Result};
use gradewise_core::Error as CoreError;

const NAME: &str = "field_fourier";

/// The frequencies that are kept along an axis of `size` positions: 0..low and size − high..size, in that order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modes {
    /// Positions along the axis.
    pub size: usize,
    /// Frequencies kept from 0 on.
    pub low: usize,
    /// Negative frequencies kept, from −high to −1.
    pub high: usize,
}

impl Modes {
    /// How many frequencies are kept.
    pub fn kept(&self) -> usize {
        self.low + self.high
    }

    /// The frequencies that are kept, from 0 to before `size`.
    pub fn frequencies(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.low).chain(self.size - self.high..self.size)
    }
}

/// The sign of the exponent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// e^(−2πi·kx/N): from positions to frequencies.
    Minus,
    /// e^(+2πi·kx/N): from frequencies to positions.
    Plus,
}

/// Whether positions or frequencies are outside the field that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Face {
    Crop,
    Extend,
}

fn sizes(z: &Array, modes: &[Modes], face: Face) -> Result<(Vec<usize>, Vec<usize>)> {
    if !(1..=3).contains(&modes.len()) || modes.iter().any(|axis| axis.kept() > axis.size) {
        let actual = format!("{modes:?}");
        let expected = "1 to 3 axes, with at most as many frequencies as positions";
        return Err(Error::Argument { operation: NAME, argument: "modes", actual, expected });
    }
    let (positions, kept): (Vec<usize>, Vec<usize>) =
        modes.iter().map(|axis| (axis.size, axis.kept())).unzip();
    let (from, to) = if face == Face::Crop { (positions, kept) } else { (kept, positions) };
    let &[_, rows, .., channels] = z.dims() else {
        return Err(CoreError::Shape {
            operation: NAME,
            argument: "z",
            actual: z.shape().clone(),
            expected: "[2, rows, space, channels]".to_owned(),
            reason: "a complex field has real and imaginary parts".to_owned(),
        }
        .into());
    };
    let shape = |extents: &[usize]| [&[2, rows], extents, &[channels]].concat();
    exact(NAME, "z", z, &shape(&from), || "the extents are those of the modes".to_owned())?;
    Ok((from, shape(&to)))
}

/// The transform of `z` `[2, rows, *positions, channels]` at the frequencies that `modes` keeps: `[2, rows, *kept, channels]`.
///
/// # Errors
/// A shape that is not that of the modes, dtypes that the device does not serve, a device other than the CPU.
pub fn crop(z: &Array, modes: &[Modes], sign: Sign) -> Result<Array> {
    run(z, modes, sign, Face::Crop)
}

/// The transform of `z` `[2, rows, *kept, channels]`, zero at the other frequencies: `[2, rows, *positions, channels]`.
///
/// # Errors
/// As [`crop`].
pub fn extend(z: &Array, modes: &[Modes], sign: Sign) -> Result<Array> {
    run(z, modes, sign, Face::Extend)
}

fn run(z: &Array, modes: &[Modes], sign: Sign, face: Face) -> Result<Array> {
    let (from, shape) = sizes(z, modes, face)?;
    if let device @ Device::Cuda(_) = z.device() {
        return Err(device.unsupported(z.dtype(), NAME));
    }
    #[cfg(feature = "fourier")]
    return transform::run(z, modes, sign, face, from, shape);
    #[cfg(not(feature = "fourier"))]
    {
        let _ = (from, shape, sign);
        Err(Error::Feature { operation: NAME, what: "Fourier transforms on the CPU", feature: "fourier" })
    }
}

#[cfg(all(test, feature = "fourier"))]
mod tests {
    use super::*;
    use crate::DType;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn random(shape: &[usize], seed: u64) -> Array {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        Array::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap()
    }

    /// One axis by the definition; `z` is `[2, n]`.
    fn definition(z: &[f64], modes: Modes, sign: f64, crop: bool) -> Vec<f64> {
        let frequencies: Vec<usize> = modes.frequencies().collect();
        let positions: Vec<usize> = (0..modes.size).collect();
        let (from, to) = if crop { (positions, frequencies) } else { (frequencies, positions) };
        let mut out = vec![0.0; 2 * to.len()];
        for (at, k) in to.iter().enumerate() {
            for (index, x) in from.iter().enumerate() {
                let angle = sign * std::f64::consts::TAU * ((k * x) % modes.size) as f64 / modes.size as f64;
                let (sin, cos) = angle.sin_cos();
                let (re, im) = (z[index], z[from.len() + index]);
                out[at] += re * cos - im * sin;
                out[to.len() + at] += re * sin + im * cos;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn one_axis_is_its_definition(size in 1usize..20, low in 0usize..9, high in 0usize..9, seed: u64) {
            prop_assume!(low + high <= size);
            let modes = Modes { size, low, high };
            for (sign, factor) in [(Sign::Minus, -1.0), (Sign::Plus, 1.0)] {
                for face in [Face::Crop, Face::Extend] {
                    let length = if face == Face::Crop { size } else { low + high };
                    let z = random(&[2, 1, length, 1], seed);
                    let found = run(&z, &[modes], sign, face).unwrap().to_f64_vec().unwrap();
                    let expected = definition(&z.to_f64_vec().unwrap(), modes, factor, face == Face::Crop);
                    for (a, b) in found.iter().zip(&expected) {
                        prop_assert!((a - b).abs() < 1e-12 * size as f64);
                    }
                }
            }
        }

        #[test]
        fn extending_is_the_adjoint_of_cropping(
            axes in proptest::collection::vec((1usize..6, 0usize..3, 0usize..3), 1..4), rows in 0usize..3,
            channels in 0usize..20, seed: u64,
        ) {
            let modes: Vec<Modes> =
                axes.iter().map(|&(extra, low, high)| Modes { size: extra + low + high, low, high }).collect();
            let shape = |extents: Vec<usize>| [&[2, rows], &extents[..], &[channels]].concat();
            let x = random(&shape(modes.iter().map(|m| m.size).collect()), seed);
            let y = random(&shape(modes.iter().map(Modes::kept).collect()), seed ^ 1);
            let dot = |a: &Array, b: &Array| -> f64 {
                a.to_f64_vec().unwrap().iter().zip(b.to_f64_vec().unwrap()).map(|(a, b)| a * b).sum()
            };
            // ⟨F x, y⟩ = ⟨x, F* y⟩ with F* the transform of the opposite sign, over pairs of real and imaginary parts.
            let left = dot(&crop(&x, &modes, Sign::Minus).unwrap(), &y);
            let right = dot(&x, &extend(&y, &modes, Sign::Plus).unwrap());
            prop_assert!((left - right).abs() < 1e-9 * (1.0 + left.abs()));
        }
    }

    #[test]
    fn more_frequencies_than_positions_are_refused() {
        let z = random(&[2, 1, 4, 1], 1);
        let error = crop(&z, &[Modes { size: 4, low: 3, high: 2 }], Sign::Minus).unwrap_err().to_string();
        assert!(error.contains("frequencies"), "{error}");
        let error = crop(&z, &[Modes { size: 5, low: 1, high: 1 }], Sign::Minus).unwrap_err().to_string();
        assert!(error.contains("[2, 1, 5, 1]"), "{error}");
    }
}
