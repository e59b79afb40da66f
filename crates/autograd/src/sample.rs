//! Sample inputs of operations: the shapes, values and attributes at which an operation is checked, compared and timed.

use crate::{Error, Result, Tensor};
use gradewise_core::{Algebra, DType, Shape, Signature};
use gradewise_kernels::{Array, Device, ops};
use rand::{Rng, seq::SliceRandom};

/// The sizes that samples are made for.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The algebra of operations on multivectors.
    pub algebra: Algebra,
    /// Rows; 0 is allowed, and makes tensors without elements.
    pub batch: usize,
    /// Features of each row; at least 1.
    pub features: usize,
}

impl Sizes {
    /// The sizes `batch` and `features` in the algebra of `signature`.
    ///
    /// # Errors
    /// More generators than there are algebras for; no features.
    pub fn new(signature: Signature, batch: usize, features: usize) -> Result<Self> {
        if features == 0 {
            let message = "samples have at least one feature".to_owned();
            return Err(Error::Argument { operation: "samples", message });
        }
        Ok(Self { algebra: Algebra::new(signature)?, batch, features })
    }

    /// The shape `[blades, batch, features]` of multivector features.
    pub fn multivectors(&self) -> [usize; 3] {
        [self.algebra.blade_count(), self.batch, self.features]
    }

    /// `count` indices below `bound`, of which some occur several times and some never; empty if `bound` is 0.
    pub fn indices(&self, count: usize, bound: usize) -> Vec<usize> {
        if bound == 0 { Vec::new() } else { (0..count).map(|i| (i * i + 3 * i + 1) % bound).collect() }
    }
}

/// How the elements of a sample input are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Standard normal.
    Normal,
    /// At least 0.5.
    Positive,
    /// At least 0.25 in magnitude: for functions with a kink at 0.
    AwayFromZero,
    /// Pairwise different by at least 0.01: for functions of the order of elements.
    Distinct,
}

/// An input of a sample: its shape and the distribution of its elements.
#[derive(Clone, Debug)]
pub struct Input {
    /// The sizes along the axes.
    pub shape: Shape,
    /// The distribution of the elements.
    pub values: Values,
}

impl Input {
    /// Standard normal elements.
    pub fn normal(shape: impl Into<Shape>) -> Self {
        Self::with(shape, Values::Normal)
    }

    /// Elements of another distribution.
    pub fn with(shape: impl Into<Shape>, values: Values) -> Self {
        Self { shape: shape.into(), values }
    }

    /// Draws the elements on the host in `f64`, rounded to what `dtype` can hold.
    ///
    /// # Errors
    /// No memory.
    pub fn draw(&self, dtype: DType, rng: &mut impl Rng) -> Result<Array> {
        let normal = Array::randn(self.shape.clone(), DType::F64, &Device::Cpu, rng)?;
        let values = match self.values {
            Values::Normal => normal,
            Values::Positive => ops::add_scalar(&ops::abs(&normal)?, 0.5)?,
            Values::AwayFromZero => ops::add(&normal, &ops::mul_scalar(&ops::sign(&normal)?, 0.25)?)?,
            Values::Distinct => {
                let count = self.shape.elements();
                let mut values: Vec<f64> =
                    (0..count).map(|i| 0.01 * (i as f64 - count as f64 / 2.0) + 0.005).collect();
                values.shuffle(rng);
                Array::from_vec(values, self.shape.clone(), &Device::Cpu)?
            }
        };
        Ok(values.cast(dtype)?.cast(DType::F64)?)
    }
}

/// An operation with inputs to try it on.
#[derive(Clone, Debug)]
pub struct Sample<O> {
    /// The operation with its attributes.
    pub operation: O,
    /// Its inputs, in order.
    pub inputs: Vec<Input>,
}

impl<O> Sample<O> {
    /// A sample.
    pub fn new(operation: O, inputs: impl Into<Vec<Input>>) -> Self {
        Self { operation, inputs: inputs.into() }
    }
}

/// Tensors of `dtype` on `device` with the elements of these arrays.
///
/// # Errors
/// From the device.
pub(crate) fn placed(arrays: &[Array], dtype: DType, device: &Device) -> Result<Vec<Tensor>> {
    arrays.iter().map(|array| Ok(Tensor::new(array.cast(dtype)?.to_device(device)?))).collect()
}
