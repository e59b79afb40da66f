//! Dropout of grades.

use super::FeaturePlanes;
use crate::{Channels, Space};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Index};
use gradewise_nn::{
    Result,
    layers::{Dropout, Layer},
};

/// Zeroes whole grades of a token's channel, and single scalars, with probability `p` in a pass of
/// [`training`](gradewise_autograd::training), and scales the rest by 1/(1 − p); the identity in every other pass. All blades of a grade
/// are dropped together, because dropping single blades is not equivariant.
#[derive(Clone, Debug)]
pub struct GradeDropout {
    multivectors: Dropout,
    scalars: Dropout,
    space: Space,
}

impl GradeDropout {
    /// With drop probability `p`; its masks are determined by `seed` and the number of the pass.
    ///
    /// # Errors
    /// A probability outside 0 ≤ p < 1.
    pub fn new(space: &Space, p: f64, seed: u64) -> Result<Self> {
        // Multivectors and scalars get different masks from one seed.
        Ok(Self {
            multivectors: Dropout::new(p, seed.wrapping_mul(2))?,
            scalars: Dropout::new(p, seed.wrapping_mul(2).wrapping_add(1))?,
            space: space.clone(),
        })
    }

    /// Applies dropout to multivectors and scalars.
    ///
    /// # Errors
    /// From the device.
    pub fn forward(&self, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        if !self.multivectors.drops() {
            return Ok(x.clone());
        }
        let (whole, rows) = (x.whole(), x.rows());
        let Channels { multivectors, scalars } = x.channels();
        let (grades, count) = (self.space.grades(), self.space.algebra().grade_count());
        let ones = Array::full([count, multivectors, rows], 1.0, whole.dtype(), &whole.device())?;
        let index = Index::constant(&grades, count, &whole.device())?;
        let kept = self.multivectors.forward(&Tensor::new(ones))?.index_select(0, &index)?;
        let planes = x.multivectors()?.mul(&kept.reshape([grades.len() * multivectors, rows])?)?;
        let kept = if scalars > 0 { self.scalars.forward(&x.scalars()?)? } else { x.scalars()? };
        FeaturePlanes::of(&kept, &planes, x.channels())
    }
}
