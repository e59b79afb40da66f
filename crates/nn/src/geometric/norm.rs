//! What acts on each token alone: the norm, the gate, dropout of grades.

use super::{Space, Streams};
use crate::{
    Error, Result,
    layers::{Dropout, Layer},
};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device, Index};

/// What keeps the norm from dividing by nothing.
const EPSILON: f64 = 0.01;

/// Multivectors by √(mean over channels of Σ over grades of |⟨x̃x⟩ of the grade| + 0.01), and scalars by their layer norm. Parts along a null
/// generator count nothing, so that translations leave the norm alone; the absolute values are for metrics that are not definite.
///
/// # Errors
/// Multivectors of another algebra.
pub fn invariant_layer_norm(space: &Space, x: &Streams) -> Result<Streams> {
    let (algebra, multivectors) = (space.algebra(), &x.multivectors);
    let device = multivectors.device();
    let grades: Vec<usize> = algebra.grades().iter().map(|&grade| usize::from(grade)).collect();
    let grades = Index::new(&grades, algebra.grade_count(), &device)?;
    let metric: Vec<f64> = algebra.squared_norms().iter().map(|&square| f64::from(square)).collect();
    let metric = Array::from_f64(&metric, [metric.len(), 1, 1], multivectors.dtype(), &device)?;
    let by_grade = multivectors.square()?.mul(&Tensor::new(metric))?.segment_sum(0, &grades)?;
    let mean = by_grade.abs()?.sum(&[0], true)?.mean(&[2], true)?;
    Ok(Streams {
        multivectors: multivectors.mul(&mean.add_scalar(EPSILON)?.rsqrt()?)?,
        scalars: x.scalars.layer_norm(None, None, 1e-5)?,
    })
}

/// Multivectors times GELU of their scalar parts, scalars through GELU.
///
/// # Errors
/// From the device.
pub fn scalar_gate(x: &Streams) -> Result<Streams> {
    let gate = x.multivectors.slice(0, 0..1)?.gelu()?;
    Ok(Streams { multivectors: x.multivectors.mul(&gate)?, scalars: x.scalars.gelu()? })
}

/// Zeroes whole grades of a token's channel, and single scalars, with probability `p` while training, and scales the rest by 1/(1 − p). Blades
/// of one grade go together: alone they have no meaning that motions leave alone.
#[derive(Debug)]
pub struct GradeDropout {
    multivectors: Dropout,
    scalars: Dropout,
    grades: Index,
}

impl GradeDropout {
    /// With drop probability `p` in training mode; its masks follow from `seed`.
    ///
    /// # Errors
    /// A probability outside 0 ≤ p < 1.
    pub fn new(space: &Space, p: f64, seed: u64, device: &Device) -> Result<Self> {
        let grades: Vec<usize> = space.algebra().grades().iter().map(|&grade| usize::from(grade)).collect();
        // Two streams of masks from one seed.
        Ok(Self {
            multivectors: Dropout::new(p, seed.wrapping_mul(2))?,
            scalars: Dropout::new(p, seed.wrapping_mul(2).wrapping_add(1))?,
            grades: Index::new(&grades, space.algebra().grade_count(), device)?,
        })
    }

    /// Whether to drop; in evaluation the layer is the identity.
    pub fn set_training(&self, training: bool) {
        self.multivectors.set_training(training);
        self.scalars.set_training(training);
    }

    /// What is left of both streams.
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
