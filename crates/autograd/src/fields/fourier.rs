//! The truncated Fourier transform of complex fields.

use super::prelude::*;
use crate::without_autocast;
use gradewise_kernels::{
    Array as Values,
    ops::fields::fourier::{self as kernel, Modes, Sign},
};
use std::f64::consts::TAU;

/// The transform of a complex field `[2, rows, *positions, channels]` (real and imaginary parts) at the frequencies that `modes` keeps:
/// `[2, rows, *kept, channels]`, without division.
///
/// # Errors
/// A shape that is not that of the modes.
pub fn fourier_crop(z: &Tensor, modes: &[Modes], sign: Sign) -> Result<Tensor> {
    Tensor::apply(Fourier::<true>::of(modes, sign), &[z])
}

/// The transform of `z` `[2, rows, *kept, channels]`, zero at all other frequencies: `[2, rows, *positions, channels]`, without division.
///
/// # Errors
/// As [`fourier_crop`].
pub fn fourier_extend(z: &Tensor, modes: &[Modes], sign: Sign) -> Result<Tensor> {
    Tensor::apply(Fourier::<false>::of(modes, sign), &[z])
}

/// Each is the adjoint of the other with the opposite sign.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fourier<const CROP: bool> {
    /// Positions, low and high frequencies of each axis.
    modes: Vec<[usize; 3]>,
    /// Whether the exponent is positive.
    plus: bool,
}

impl<const CROP: bool> Fourier<CROP> {
    fn of(modes: &[Modes], sign: Sign) -> Self {
        let modes = modes.iter().map(|axis| [axis.size, axis.low, axis.high]).collect();
        Self { modes, plus: sign == Sign::Plus }
    }

    fn modes(&self) -> Vec<Modes> {
        self.modes.iter().map(|&[size, low, high]| Modes { size, low, high }).collect()
    }

    fn sign(&self) -> Sign {
        if self.plus { Sign::Plus } else { Sign::Minus }
    }
}

impl<const CROP: bool> Operation for Fourier<CROP> {
    const NAME: &'static str = if CROP { "field_fourier_crop" } else { "field_fourier_extend" };
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |modes: &[[usize; 3]], plus| {
            let extents = modes.iter().map(|&[size, low, high]| if CROP { size } else { low + high });
            let shape: Vec<usize> =
                [2, sizes.batch].into_iter().chain(extents).chain([sizes.features]).collect();
            Sample::new(Self { modes: modes.to_vec(), plus }, [Input::normal(shape)])
        };
        Ok(vec![
            sample(&[[7, 2, 2]], false),
            sample(&[[4, 1, 1], [5, 3, 2]], true),
            sample(&[[2, 1, 1], [3, 1, 0], [4, 1, 2]], false),
        ])
    }

    /// The CPU has the fast transform. Elsewhere it is a product with the matrix of the kept frequencies.
    fn serves(&self, inputs: &[Array]) -> bool {
        inputs.first().is_some_and(|z| z.device() == Device::Cpu)
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let run = if CROP { kernel::crop } else { kernel::extend };
        Ok(run(&inputs[0], &self.modes(), self.sign())?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (modes, plus) = (self.modes.clone(), !self.plus);
        Ok(vec![Some(match CROP {
            true => Tensor::apply(Fourier::<false> { modes, plus }, &[grad])?,
            false => Tensor::apply(Fourier::<true> { modes, plus }, &[grad])?,
        })])
    }

    /// Axis by axis, products with the matrices of cosines and sines. 16-bit fields are transformed in `f32`: the sums grow with the grid.
    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (first, modes) = (&inputs[0], self.modes());
        let Some((&[2, _], _)) = first.shape().dims().split_first_chunk() else {
            return refuse(
                Self::NAME,
                format!("`z` has shape {}, expected [2, rows, space, channels]", first.shape()),
            );
        };
        if first.shape().rank() != modes.len() + 3 {
            return refuse(
                Self::NAME,
                format!("`z` has shape {}, the modes are of {} axes", first.shape(), modes.len()),
            );
        }
        let mut z = first.cast(first.dtype().accumulator())?;
        let sign = if self.plus { 1.0 } else { -1.0 };
        for (at, axis) in modes.iter().enumerate().rev() {
            // Mixed precision has decided on the transform; its matrix products stay in that precision.
            z = without_autocast(|| along(&z, at + 2, axis, CROP, sign))?;
        }
        z.cast(first.dtype())
    }
}

/// The transform along one axis.
fn along(z: &Tensor, axis: usize, modes: &Modes, crop: bool, sign: f64) -> Result<Tensor> {
    let sizes = z.shape().to_vec();
    let (from, to) = if crop { (modes.size, modes.kept()) } else { (modes.kept(), modes.size) };
    if sizes[axis] != from {
        return refuse(
            "field_fourier",
            format!("axis {axis} of `z` has {} entries, the modes have {from}", sizes[axis]),
        );
    }
    let before: usize = sizes[1..axis].iter().product();
    let after: usize = sizes[axis + 1..].iter().product();
    let frequencies: Vec<usize> = modes.frequencies().collect();
    let entry = |row: usize, column: usize| {
        let (k, x) = if crop { (frequencies[row], column) } else { (frequencies[column], row) };
        // Reduced first, so that the angle is exact to rounding however large the grid.
        TAU * ((k * x) % modes.size) as f64 / modes.size as f64
    };
    let matrix = |function: fn(f64) -> f64| -> Result<Tensor> {
        let values: Vec<f64> = (0..to)
            .flat_map(|row| (0..from).map(move |column| (row, column)))
            .map(|(r, c)| function(entry(r, c)))
            .collect();
        Ok(Tensor::new(Values::constant(&values, [to, from], z.dtype(), &z.device())?))
    };
    let (cosines, sines) = (matrix(f64::cos)?, matrix(f64::sin)?);
    let z = z.reshape([2, before, from, after])?;
    let (by_cosine, by_sine) = (cosines.matmul(&z)?, sines.matmul(&z)?.mul_scalar(sign)?);
    // (a + ib)(cos + i·sign·sin): the sines take the real part to the imaginary one, and the imaginary part to the real one, negated.
    let [real, imaginary] = [by_sine.slice(0, 0..1)?, by_sine.slice(0, 1..2)?];
    let turned = crate::concat(&[&imaginary.neg()?, &real], 0)?;
    let mut shape = sizes;
    shape[axis] = to;
    by_cosine.add(&turned)?.reshape(shape)
}
