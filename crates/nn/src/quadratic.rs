//! The quadratic form of multivectors.

use crate::{Placement, Result};
use gradewise_autograd::Tensor;
use gradewise_core::Algebra;
use gradewise_kernels::{Array, Device, Index};

/// The grade of each blade.
///
/// # Errors
/// If the device has no memory.
pub fn grade_index(algebra: &Algebra, device: &Device) -> Result<Index> {
    let grades: Vec<usize> = algebra.grades().iter().map(|&grade| usize::from(grade)).collect();
    Ok(Index::new(&grades, algebra.grade_count(), device)?)
}

/// The quadratic form ⟨x̃x⟩ of each grade. Its constants are copied to the device once.
#[derive(Clone, Debug)]
pub struct QuadraticForm {
    grades: Index,
    /// The diagonal, `[blades, 1, 1]`.
    metric: Tensor,
}

impl QuadraticForm {
    /// The quadratic form of `algebra`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn new(algebra: &Algebra, placement: impl Into<Placement>) -> Result<Self> {
        let placement = &placement.into();
        let Placement { device, dtype } = placement;
        let metric: Vec<f64> = algebra.squared_norms().iter().map(|&square| f64::from(square)).collect();
        let metric = Array::from_f64(&metric, [metric.len(), 1, 1], *dtype, device)?;
        Ok(Self { grades: grade_index(algebra, device)?, metric: Tensor::new(metric) })
    }

    /// `[blades, …]` → `[grades, …]`
    ///
    /// # Errors
    /// Multivectors of another algebra, dtype or device.
    pub fn by_grade(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.square()?.mul(&self.metric)?.segment_sum(0, &self.grades)?)
    }
}
