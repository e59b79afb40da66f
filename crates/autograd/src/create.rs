//! Tensors without a history, from data.

use crate::{Result, Tensor};
use gradewise_core::{DType, Shape};
use gradewise_kernels::{Array, Device, Element};

impl Tensor {
    /// A tensor from row-major data.
    ///
    /// # Errors
    /// A number of elements other than the shape's.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::from_slice(data, shape, device)?))
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::zeros(shape, dtype, device)?))
    }

    /// A tensor of ones.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::ones(shape, dtype, device)?))
    }

    /// A tensor filled with `value`.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn full(shape: impl Into<Shape>, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::full(shape, value, dtype, device)?))
    }

    /// Independent standard normal samples.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn randn(
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        rng: &mut impl rand::Rng,
    ) -> Result<Self> {
        Ok(Self::new(Array::randn(shape, dtype, device, rng)?))
    }
}
