//! Positions along an axis, one for each element of a shape.

use crate::{Array, CudaDevice, DType, Device, Error, Result};
use gradewise_core::Shape;
use std::fmt;

/// Positions along an axis of an array, as sorting and searching find them and [`gather`](crate::ops::gather) takes them:
/// whole numbers below a bound, of any shape, where the array is.
///
/// They are computed on the device and stay there; [`to_vec`](Self::to_vec) waits for them.
#[derive(Clone)]
pub struct Positions {
    /// 32-bit whole numbers. Their dtype says how wide they are; nothing computes with them as if they were what it says.
    words: Array,
    bound: usize,
    /// Whether no position occurs twice along the axis.
    distinct: bool,
}

impl Positions {
    /// The dtype of words that hold positions.
    const WORD: DType = DType::F32;

    /// Positions below `bound`, in row-major order.
    ///
    /// # Errors
    /// [`Error::Index`] at the first that is not; a number of values that does not fit the shape.
    pub fn new(values: &[usize], shape: impl Into<Shape>, bound: usize, device: &Device) -> Result<Self> {
        const NAME: &str = "Positions::new";
        let mut words = Vec::with_capacity(values.len());
        for (position, &value) in values.iter().enumerate() {
            match u32::try_from(value) {
                Ok(word) if value < bound => words.push(f32::from_bits(word)),
                _ => return Err(Error::Index { operation: NAME, position, value, bound }),
            }
        }
        Ok(Self { words: Array::from_slice(&words, shape, device)?, bound, distinct: false })
    }

    /// Uninitialised positions, for a kernel to write.
    pub(crate) fn for_kernel(
        operation: &'static str,
        shape: impl Into<Shape>,
        (bound, distinct): (usize, bool),
        device: &CudaDevice,
    ) -> Result<Self> {
        Ok(Self { words: Array::for_kernel(operation, shape, Self::WORD, device)?, bound, distinct })
    }

    /// Positions from the host, written by `fill`.
    pub(crate) fn build(
        shape: impl Into<Shape>,
        (bound, distinct): (usize, bool),
        fill: impl FnOnce(&mut [u32]),
    ) -> Result<Self> {
        let words =
            Array::build(shape, &Device::Cpu, |words: &mut [f32]| fill(bytemuck::cast_slice_mut(words)))?;
        Ok(Self { words, bound, distinct })
    }

    /// The sizes along the axes.
    pub fn shape(&self) -> &Shape {
        self.words.shape()
    }

    /// The exclusive upper bound of the positions.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// The device of the positions.
    pub fn device(&self) -> Device {
        self.words.device()
    }

    /// The positions in row-major order.
    ///
    /// # Errors
    /// From the device.
    pub fn to_vec(&self) -> Result<Vec<usize>> {
        Ok(self.words.to_vec::<f32>()?.into_iter().map(|word| word.to_bits() as usize).collect())
    }

    /// The same positions on another device.
    ///
    /// # Errors
    /// If the transfer fails.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        self.map(|words| words.to_device(device))
    }

    /// Another view of the words, or a copy.
    pub(crate) fn map(&self, view: impl FnOnce(&Array) -> Result<Array>) -> Result<Self> {
        Ok(Self { words: view(&self.words)?, bound: self.bound, distinct: self.distinct })
    }

    pub(crate) fn words(&self) -> &Array {
        &self.words
    }

    pub(crate) fn are_distinct(&self) -> bool {
        self.distinct
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Positions({} below {} on {})", self.shape(), self.bound, self.device())
    }
}
