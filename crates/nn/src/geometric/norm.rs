//! Tokenwise layers: norm, gate and dropout of grades.

use super::{Space, Streams};
use crate::{
    Error, Placement, Result,
    layers::{Dropout, Layer},
    quadratic::{QuadraticForm, grade_index},
};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device, Index, ops::layer_norm};

/// Added under the root of the norm, to avoid division by zero.
const EPSILON: f64 = 0.01;

/// Divides multivectors by √(mean over channels of Σ over grades of |⟨x̃x⟩ of the grade| + 0.01); applies a layer norm to scalars. Blades
/// with a null generator do not contribute, so the norm is invariant under translations. The absolute values serve indefinite metrics.
#[derive(Debug)]
pub struct InvariantLayerNorm(QuadraticForm);

impl InvariantLayerNorm {
    /// For multivectors of `space`; it has no parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn new(space: &Space, placement: impl Into<Placement>) -> Result<Self> {
        let placement = &placement.into();
        Ok(Self(QuadraticForm::new(space.algebra(), placement)?))
    }

    /// Both streams, normalised.
    ///
    /// # Errors
    /// Multivectors of another algebra, dtype or device.
    pub fn forward(&self, x: &Streams) -> Result<Streams> {
        let mean = self.0.by_grade(&x.multivectors)?.abs()?.sum(&[0], true)?.mean(&[2], true)?;
        Ok(Streams {
            multivectors: x.multivectors.mul(&mean.add_scalar(EPSILON)?.rsqrt()?)?,
            scalars: x.scalars.layer_norm(None, None, layer_norm::EPSILON)?,
        })
    }
}

/// Multivectors times GELU of their scalar parts, scalars through GELU.
///
/// # Errors
/// From the device.
pub fn scalar_gate(x: &Streams) -> Result<Streams> {
    let gate = x.multivectors.slice(0, 0..1)?.gelu()?;
    Ok(Streams { multivectors: x.multivectors.mul(&gate)?, scalars: x.scalars.gelu()? })
}

/// Zeroes whole grades of a token's channel, and single scalars, with probability `p` in a pass of
/// [`training`](gradewise_autograd::training), and scales the rest by 1/(1 − p); the identity in every other pass. All blades of a grade
/// are dropped together, because dropping single blades is not equivariant.
#[derive(Debug)]
pub struct GradeDropout {
    multivectors: Dropout,
    scalars: Dropout,
    grades: Index,
}

impl GradeDropout {
    /// With drop probability `p`; its masks are determined by `seed` and the number of the pass.
    ///
    /// # Errors
    /// A probability outside 0 ≤ p < 1.
    pub fn new(space: &Space, p: f64, seed: u64, device: &Device) -> Result<Self> {
        // Multivectors and scalars get different masks from one seed.
        Ok(Self {
            multivectors: Dropout::new(p, seed.wrapping_mul(2))?,
            scalars: Dropout::new(p, seed.wrapping_mul(2).wrapping_add(1))?,
            grades: grade_index(space.algebra(), device)?,
        })
    }

    /// Applies dropout to both streams.
    ///
    /// # Errors
    /// Multivectors of another algebra; from the device.
    pub fn forward(&self, x: &Streams) -> Result<Streams> {
        if !self.multivectors.drops() {
            return Ok(x.clone());
        }
        let &[blades, tokens, channels] = x.multivectors.shape().dims() else {
            return Err(Error::Argument {
                operation: "GradeDropout",
                argument: "multivectors",
                actual: x.multivectors.shape().to_string(),
                expected: "[blades, tokens, channels]".to_owned(),
            });
        };
        debug_assert_eq!(blades, self.grades.len());
        let shape = [self.grades.bound(), tokens, channels];
        let ones = Array::full(shape, 1.0, x.multivectors.dtype(), &x.multivectors.device())?;
        let kept = self.multivectors.forward(&Tensor::new(ones))?.index_select(0, &self.grades)?;
        Ok(Streams { multivectors: x.multivectors.mul(&kept)?, scalars: self.scalars.forward(&x.scalars)? })
    }
}
