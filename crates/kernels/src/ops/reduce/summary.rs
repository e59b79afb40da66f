//! Human-readable summaries of arrays.

use super::statistics::{self, Statistics};
use crate::{Array, CudaDevice, Device, Element, Error, Result, runtime::memory};
use gradewise_core::{DType, Shape};
use std::fmt;

/// Magnitude from which an input is suspicious: f32 keeps no digit below 1000 of it, and its fourth power overflows.
const LARGE: f64 = 1e10;

/// Values that a summary shows.
const FIRST: usize = 8;

/// Shape, first values and statistics of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The sizes.
    pub shape: Shape,
    /// The storage type.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
    /// The first values in row-major order, at most eight.
    pub first: Vec<f64>,
    /// The smallest finite value; NaN if there is none.
    pub min: f64,
    /// The greatest finite value; NaN if there is none.
    pub max: f64,
    /// The mean of the finite values; NaN if there is none.
    pub mean: f64,
    /// The standard deviation (of the population) of the finite values; NaN if there is none.
    pub std: f64,
    /// Number of NaN.
    pub nan: usize,
    /// Number of ±∞.
    pub infinite: usize,
}

/// Counts of values that an input should not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Number of NaN.
    pub nan: usize,
    /// Number of ±∞.
    pub infinite: usize,
    /// Number of finite values with magnitude above 1e10.
    pub large: usize,
}

impl Validation {
    /// Whether every value is finite and of ordinary size.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

impl Array {
    /// Shape, first values and statistics. Reads the whole array.
    ///
    /// # Errors
    /// If the host cannot read the dtype.
    pub fn summary(&self) -> Result<Summary> {
        let (distinct, repeats) = self.distinct()?;
        let Summary { min, max, mean, std, nan, infinite, .. } = distinct.summary_of_all()?;
        Ok(Summary {
            shape: self.shape().clone(),
            dtype: self.dtype(),
            device: self.device(),
            first: self.first_values()?,
            min,
            max,
            mean,
            std,
            nan: nan.saturating_mul(repeats),
            infinite: infinite.saturating_mul(repeats),
        })
    }

    /// The array with each element that a broadcast axis repeats taken once, and the number of repetitions: enough for statistics, whatever
    /// the size of the view.
    fn distinct(&self) -> Result<(Self, usize)> {
        let (mut part, mut repeats) = (self.clone(), 1usize);
        for axis in 0..self.rank() {
            let size = self.dims()[axis];
            if self.strides()[axis] == 0 && size > 1 {
                part = part.slice(axis, 0..1)?;
                repeats = repeats.saturating_mul(size);
            }
        }
        Ok((part, repeats))
    }

    fn summary_of_all(&self) -> Result<Summary> {
        if let Device::Cuda(device) = self.device() {
            return self.summary_on(&device);
        }
        let values = self.to_f64_vec()?;
        let nan = values.iter().filter(|value| value.is_nan()).count();
        let infinite = values.iter().filter(|value| value.is_infinite()).count();
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let count = (values.len() - nan - infinite) as f64;
        let mean = finite().sum::<f64>() / count;
        let variance = finite().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Ok(Summary {
            shape: self.shape().clone(),
            dtype: self.dtype(),
            device: self.device(),
            first: Vec::new(),
            min: finite().fold(f64::NAN, f64::min),
            max: finite().fold(f64::NAN, f64::max),
            mean,
            std: variance.sqrt(),
            nan,
            infinite,
        })
    }

    /// The statistics, computed on the device.
    fn summary_on(&self, device: &CudaDevice) -> Result<Summary> {
        const NAME: &str = "summary";
        let Statistics { nan, infinite, min, max, sum, .. } =
            statistics::statistics(device, NAME, self, LARGE)?;
        let count = self.elements() - nan - infinite;
        let mean = sum / count as f64;
        let variance = statistics::squared_deviation(device, NAME, self, mean)? / count as f64;
        let limit = |value: f64| if count == 0 { f64::NAN } else { value };
        Ok(Summary {
            shape: self.shape().clone(),
            dtype: self.dtype(),
            device: self.device(),
            first: Vec::new(),
            min: limit(min),
            max: limit(max),
            mean,
            std: variance.sqrt(),
            nan,
            infinite,
        })
    }

    /// The first values in row-major order, at most eight.
    fn first_values(&self) -> Result<Vec<f64>> {
        // Enough of the leading positions of each axis, from the innermost outwards.
        let (mut part, mut wanted) = (self.clone(), FIRST);
        for axis in (0..self.rank()).rev() {
            let size = self.dims()[axis];
            part = part.slice(axis, 0..size.min(wanted))?;
            wanted = wanted.div_ceil(size.max(1));
        }
        Ok(part.to_f64_vec()?.into_iter().take(FIRST).collect())
    }

    /// Counts NaN, infinite and suspiciously large (above 1e10) values.
    ///
    /// # Errors
    /// If the host cannot read the dtype.
    pub fn validate(&self) -> Result<Validation> {
        let (distinct, repeats) = self.distinct()?;
        let Validation { nan, infinite, large } = distinct.validate_all()?;
        let [nan, infinite, large] = [nan, infinite, large].map(|count| count.saturating_mul(repeats));
        Ok(Validation { nan, infinite, large })
    }

    fn validate_all(&self) -> Result<Validation> {
        if let Device::Cuda(device) = self.device() {
            let Statistics { nan, infinite, large, .. } =
                statistics::statistics(&device, "validate", self, LARGE)?;
            return Ok(Validation { nan, infinite, large });
        }
        // Fast path: mostly there is nothing to count.
        let clean = match self.dtype() {
            DType::F32 => self
                .as_slice::<f32>()
                .is_ok_and(|values| values.iter().all(|value| value.abs() <= LARGE as f32)),
            DType::F64 => {
                self.as_slice::<f64>().is_ok_and(|values| values.iter().all(|value| value.abs() <= LARGE))
            }
            _ => false,
        };
        let mut counts = Validation::default();
        if clean {
            return Ok(counts);
        }
        for value in self.to_f64_vec()? {
            counts.nan += usize::from(value.is_nan());
            counts.infinite += usize::from(value.is_infinite());
            counts.large += usize::from(value.is_finite() && value.abs() > LARGE);
        }
        Ok(counts)
    }

    /// Counts elements that still have the bits of poisoned memory ([`debug`](crate::runtime::debug)): those that were never written. Arithmetic
    /// makes other NaN, but copies keep these.
    ///
    /// # Errors
    /// From the device.
    pub fn unwritten(&self) -> Result<usize> {
        fn count<T: Element>(array: &Array) -> Result<usize> {
            let values = array.to_vec::<T>()?;
            let size = size_of::<T>();
            let poisoned = |element: &&[u8]| element.iter().all(|&byte| byte == memory::POISON);
            Ok(bytemuck::cast_slice::<T, u8>(&values).chunks(size).filter(poisoned).count())
        }
        match self.dtype() {
            DType::F64 => count::<f64>(self),
            DType::F32 => count::<f32>(self),
            DType::BF16 => count::<half::bf16>(self),
            DType::F16 => count::<half::f16>(self),
        }
    }

    /// Refuses NaN and infinite values, and logs a warning about large ones, on behalf of `operation`.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with their numbers.
    pub fn require_finite(&self, operation: &'static str, argument: &'static str) -> Result<()> {
        let Validation { nan, infinite, large } = self.validate()?;
        if nan + infinite > 0 {
            return Err(Error::NotFinite { operation, argument, shape: self.shape().clone(), nan, infinite });
        }
        if large > 0 {
            tracing::warn!(
                "{operation}: {large} values of `{argument}` {} exceed 1e10 in magnitude",
                self.shape()
            );
        }
        Ok(())
    }

    /// ‖self − reference‖ / ‖reference‖ over all elements, in double precision; against a reference of zeros, ‖self‖.
    /// Infinite if a NaN or an infinity occurs in either, so that no tolerance accepts one.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn relative_error(&self, reference: &Self) -> Result<f64> {
        self.require_shape("relative_error", "self", reference.dims(), || {
            "the reference has this shape".to_owned()
        })?;
        let (values, expected) = (self.to_f64_vec()?, reference.to_f64_vec()?);
        let difference = values.iter().zip(&expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        let norm = expected.iter().map(|b| b * b).sum::<f64>().sqrt();
        let error = if norm == 0.0 { difference } else { difference / norm };
        Ok(if error.is_finite() && norm.is_finite() { error } else { f64::INFINITY })
    }
}

/// A number in a few characters.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size.is_finite() && size != 0.0 && !(1e-3..1e6).contains(&size) {
            write!(f, "{:.3e}", self.0)
        } else {
            write!(f, "{:.4}", self.0)
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}: [", self.dtype, self.shape, self.device)?;
        for (position, value) in self.first.iter().enumerate() {
            write!(f, "{}{}", if position == 0 { "" } else { ", " }, Short(*value))?;
        }
        let more = if self.first.len() < self.shape.elements() { ", …" } else { "" };
        write!(
            f,
            "{more}] min {} max {} mean {} std {}",
            Short(self.min),
            Short(self.max),
            Short(self.mean),
            Short(self.std)
        )?;
        if self.nan + self.infinite > 0 {
            write!(f, " ({} NaN, {} infinite)", self.nan, self.infinite)?;
        }
        Ok(())
    }
}

impl fmt::Display for Array {
    /// The [`Summary`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.summary() {
            Ok(summary) => summary.fmt(f),
            Err(_) => fmt::Debug::fmt(self, f),
        }
    }
}
