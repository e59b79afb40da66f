//! Rotary positions.

use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::Array;
use gradewise_nn::{DeepClone, Module, Parameter, Placement, Result};

/// Pairs of scalars rotated by an angle that grows with the number of their token (Su et al. 2021, arXiv:2104.09864).
///
/// Parameter, not trained: the frequencies `inv_freq` `[scalars / 2]`, in single precision as published.
#[derive(Debug, Module, DeepClone)]
pub(super) struct RotaryPositions {
    inv_freq: Parameter,
}

impl RotaryPositions {
    /// Frequencies that fall from 1 to about 1/`base`.
    pub fn init(scalars: usize, base: f64, placement: &Placement) -> Result<Self> {
        let frequency =
            |pair: usize| f64::from(1.0f32 / (base as f32).powf(2.0 * pair as f32 / scalars as f32));
        let values: Vec<f64> = (0..scalars / 2).map(frequency).collect();
        let values = Array::from_f64(&values, [values.len()], placement.dtype, &placement.device)?;
        Ok(Self { inv_freq: Parameter::frozen(values) })
    }

    /// Scalars `[batch, heads, tokens, scalars]`, rotated.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (tokens, half) = (x.shape()[2], x.shape()[3] / 2);
        let numbers: Vec<f64> = (0..tokens).map(|token| token as f64).collect();
        let frequencies = self.inv_freq.tensor().reshape([1, half])?;
        let numbers = Array::constant(&numbers, [tokens, 1], frequencies.dtype(), &x.device())?;
        let angles = Tensor::new(numbers).mul(&frequencies)?;
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        let (first, second) = (x.slice(3, 0..half)?, x.slice(3, half..2 * half)?);
        let turned = [first.mul(&cos)?.sub(&second.mul(&sin)?)?, second.mul(&cos)?.add(&first.mul(&sin)?)?];
        Ok(concat(&[&turned[0], &turned[1]], 3)?)
    }
}
