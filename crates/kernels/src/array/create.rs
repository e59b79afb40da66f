//! New arrays from values, constants and random numbers; conversions of dtype and device.

use super::Array;
use crate::{
    Device, Element, Error, Result,
    array::{cast, elementwise::map_exact, fill},
    cpu::element::with_storage,
    runtime::cuda::Key,
};
use gradewise_core::{DType, Shape};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal, StandardUniform};

impl Array {
    /// An array of the given elements, in row-major order.
    ///
    /// # Errors
    /// If their number does not fit the shape, or the device cannot hold the dtype.
    pub fn from_slice<T: Element>(values: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        let shape = shape.into();
        if values.len() != shape.elements() {
            return Err(Error::Length { operation: "from_slice", shape, actual: values.len() });
        }
        Self::build_as("from_slice", shape, device, |out: &mut [T]| out.copy_from_slice(values))
    }

    /// An array of the elements of a vector, in row-major order. On the host the array takes over the vector's memory, without a copy.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        const NAME: &str = "from_vec";
        let shape = shape.into();
        if values.len() != shape.elements() {
            return Err(Error::Length { operation: NAME, shape, actual: values.len() });
        }
        match device {
            Device::Cpu => Self::adopt(NAME, values, shape),
            Device::Cuda(cuda) => Self::upload(NAME, &values, shape, cuda),
        }
    }

    /// An array of numbers given in double precision, rounded to `dtype`.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_f64(values: &[f64], shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = shape.into();
        if values.len() != shape.elements() {
            return Err(Error::Length { operation: "from_f64", shape, actual: values.len() });
        }
        let mut values = values.iter().copied();
        Self::generate("from_f64", shape, dtype, device, || values.next().unwrap_or(f64::NAN))
    }

    /// An array that is the same all the time, such as a quadratic form: as [`from_f64`](Self::from_f64), but put on a CUDA device the
    /// first time only and kept there, so that work which asks for it again can be captured. All that ask share its memory.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn constant(values: &[f64], shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let shape = shape.into();
        match device {
            Device::Cpu => Self::from_f64(values, shape, dtype, device),
            Device::Cuda(cuda) => {
                let bytes = bytemuck::cast_slice(values);
                let key = Key::Numbers { bytes, dtype: Some(dtype), shape: shape.clone() };
                Ok((*cuda.constant(key, || Self::from_f64(values, shape, dtype, device))?).clone())
            }
        }
    }

    /// A [`constant`](Self::constant) of many numbers that follow from few: `values` of the function `name` for these `arguments`. On a CUDA
    /// device `values` is called the first time only, and what is compared afterwards are the name and the arguments.
    ///
    /// # Errors
    /// As [`from_f64`](Self::from_f64).
    pub fn derived(
        (name, arguments): (&str, &[u64]),
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        values: impl FnOnce() -> Vec<f64>,
    ) -> Result<Self> {
        /// A type of its own: its keys are no numbers of a constant.
        struct Derived(Array);
        let shape = shape.into();
        match device {
            Device::Cpu => Self::from_f64(&values(), shape, dtype, device),
            Device::Cuda(cuda) => {
                let bytes = [bytemuck::cast_slice(arguments), name.as_bytes()].concat();
                let key = Key::Numbers { bytes: &bytes[..], dtype: Some(dtype), shape: shape.clone() };
                let make = || Ok(Derived(Self::from_f64(&values(), shape, dtype, device)?));
                Ok(cuda.constant(key, make)?.0.clone())
            }
        }
    }

    /// A rank-0 array.
    ///
    /// # Errors
    /// If the device does not support `dtype`.
    pub fn scalar(value: f64, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(Shape::scalar(), value, dtype, device)
    }

    /// An array with one value everywhere.
    ///
    /// # Errors
    /// If the device does not support `dtype` or is out of memory.
    pub fn full(shape: impl Into<Shape>, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        Self::filled("full", shape.into(), value, dtype, device)
    }

    fn filled(
        operation: &'static str,
        shape: Shape,
        value: f64,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        if let Device::Cuda(cuda) = device {
            return fill::full(cuda, operation, shape, value, dtype);
        }
        with_storage!(dtype, T => {
            Self::build_as(operation, shape, device, |out: &mut [T]| out.fill(T::narrow(value)))
        })
    }

    /// An array of zeros.
    ///
    /// # Errors
    /// As [`full`](Self::full).
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::filled("zeros", shape.into(), 0.0, dtype, device)
    }

    /// An array of ones.
    ///
    /// # Errors
    /// As [`full`](Self::full).
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::filled("ones", shape.into(), 1.0, dtype, device)
    }

    /// Zeros with the shape, dtype and device of this array.
    ///
    /// # Errors
    /// If out of memory.
    pub fn zeros_like(&self) -> Result<Self> {
        Self::zeros(&self.shape, self.dtype, &self.device())
    }

    /// One value everywhere, with the shape, dtype and device of this array.
    ///
    /// # Errors
    /// If out of memory.
    pub fn full_like(&self, value: f64) -> Result<Self> {
        Self::full(&self.shape, value, self.dtype, &self.device())
    }

    /// Independent samples of the uniform distribution on [0, 1).
    ///
    /// Drawn in double precision and rounded (down, in `f32`, so that 1 does not occur): the same generator gives the
    /// same numbers in every dtype and on every device.
    ///
    /// # Errors
    /// As [`full`](Self::full).
    pub fn uniform<R: Rng + ?Sized>(
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        rng: &mut R,
    ) -> Result<Self> {
        // 24 bits are exact in f32 as well: no rounding reaches 1.
        const STEP: f64 = 1.0 / (1u64 << 24) as f64;
        Self::generate("uniform", shape.into(), dtype, device, || {
            let sample: f64 = StandardUniform.sample(rng);
            if dtype == DType::F64 { sample } else { (sample / STEP).floor() * STEP }
        })
    }

    /// Independent samples of the standard normal distribution.
    ///
    /// Drawn in double precision and rounded: the same generator gives the same numbers in every dtype and on every
    /// device.
    ///
    /// # Errors
    /// As [`full`](Self::full).
    pub fn randn<R: Rng + ?Sized>(
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        rng: &mut R,
    ) -> Result<Self> {
        Self::generate("randn", shape.into(), dtype, device, || StandardNormal.sample(rng))
    }

    /// The same values in another dtype; shares the storage if it is the same one.
    ///
    /// # Errors
    /// If the device does not support `dtype` or is out of memory.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        if self.dtype == dtype {
            return Ok(self.clone());
        }
        if let Device::Cuda(cuda) = self.device() {
            return cast::cast(&cuda, self, dtype);
        }
        with_storage!(self.dtype, S => with_storage!(dtype, T => {
            map_exact("cast", &self.shape, [self], cast::To::<S, T>::default())
        }))
    }

    /// The same values on another device; shares the storage if it is the same one.
    ///
    /// Between CUDA devices of one driver the copy is queued behind the work of both, and goes from one to the other without the host where
    /// the target can access the source's memory (peer access, as `gradewise doctor` says), or is the same device. Otherwise, such as
    /// between devices that no bus joins, it goes through the host, which waits.
    ///
    /// # Errors
    /// [`Error::InCapture`] inside a capture; if the transfer fails.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if *device == self.device() {
            return Ok(self.clone());
        }
        if let Device::Cuda(target) = device
            && let Some(copy) = self.to_peer(target)?
        {
            return Ok(copy);
        }
        with_storage!(self.dtype, T => Self::from_vec(self.to_vec::<T>()?, &self.shape, device))
    }

    fn generate(
        operation: &'static str,
        shape: Shape,
        dtype: DType,
        device: &Device,
        mut next: impl FnMut() -> f64,
    ) -> Result<Self> {
        with_storage!(dtype, T => {
            Self::build_as(operation, shape, device, |out: &mut [T]| out.fill_with(|| T::narrow(next())))
        })
    }
}
