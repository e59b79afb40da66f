//! The algebra, and the linear maps of multivectors that are equivariant under its group.

use crate::{Error, Result};
use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device, Index};

/// The algebra of a geometric network and the group it is equivariant under.
///
/// Linear maps that commute with the whole Pin group act on each grade. A null generator e₀, which is invariant under every motion, allows
/// maps of e₀x in addition. In an oriented space, the pseudoscalar takes the place of e₀, and the maps no longer commute with reflections.
#[derive(Clone, Debug)]
pub struct Space {
    algebra: Algebra,
    /// The blade that multiplies x from the left for the additional maps, if there is one.
    factor: Option<usize>,
}

impl Space {
    /// Projective geometric algebra of space (points, lines, planes, motions): Cl(3,0,1) under E(3), reflections included. Nine linear
    /// maps: five of grades, four of e₀x.
    pub fn projective() -> Self {
        Self::new(Signature::PGA3).unwrap_or_else(|_| unreachable!("one null generator"))
    }

    /// Space-time: Cl(1,3) under proper Lorentz transformations. Ten linear maps: five of grades, five of the pseudoscalar times x.
    pub fn space_time() -> Self {
        Self::oriented(Signature::STA).unwrap_or_else(|_| unreachable!("no null generators"))
    }

    /// The space of `signature` under its whole Pin group.
    ///
    /// # Errors
    /// More than one null generator; more generators than are supported.
    pub fn new(signature: Signature) -> Result<Self> {
        let algebra = Algebra::new(signature)?;
        let factor = match signature.r {
            0 => None,
            1 => algebra.blade_of_mask(1 << (algebra.dimension() - 1)),
            more => {
                return Err(Error::Argument {
                    operation: "Space",
                    argument: "signature",
                    actual: format!("{more} null generators"),
                    expected: "at most one: motions mix several".to_owned(),
                });
            }
        };
        Ok(Self { algebra, factor })
    }

    /// The space of `signature`, which has no null generators, with orientation: equivariance only under even versors.
    ///
    /// # Errors
    /// Null generators; more generators than are supported.
    pub fn oriented(signature: Signature) -> Result<Self> {
        if signature.r != 0 {
            return Err(Error::Argument {
                operation: "Space",
                argument: "signature",
                actual: format!("{} null generators", signature.r),
                expected: "none: their pseudoscalar sends half of everything to zero".to_owned(),
            });
        }
        let algebra = Algebra::new(signature)?;
        let factor = algebra.blade_count().checked_sub(1);
        Ok(Self { algebra, factor })
    }

    /// The algebra.
    pub fn algebra(&self) -> &Algebra {
        &self.algebra
    }

    /// Whether the algebra is Cl(3,0,1), whose trivectors are points with distances between them.
    pub fn has_points(&self) -> bool {
        self.algebra.signature() == Signature::PGA3
    }

    /// Blades that contribute to ⟨x̃x⟩, with their signs.
    pub(super) fn invariant(&self) -> (Vec<usize>, Vec<f64>) {
        let squares = self.algebra.squared_norms().iter().enumerate();
        squares.filter(|(_, square)| **square != 0).map(|(blade, &square)| (blade, f64::from(square))).unzip()
    }

    /// The lowest grade of products with the factor, if there is a factor.
    pub(super) fn reached(&self) -> Option<usize> {
        let factor = self.factor?;
        let grade = |(out, sign): (usize, i8)| (sign != 0).then(|| usize::from(self.algebra.grades()[out]));
        (0..self.algebra.blade_count())
            .filter_map(|blade| grade(self.algebra.blade_product(factor, blade)))
            .min()
    }

    /// For each blade of the product factor·x: its source blade in x and the sign, which is 0 if there is no source.
    pub(super) fn sources(&self) -> Option<(Vec<usize>, Vec<f64>)> {
        let factor = self.factor?;
        let blades = self.algebra.blade_count();
        let (mut sources, mut signs) = (vec![0; blades], vec![0.0; blades]);
        for blade in 0..blades {
            let (out, sign) = self.algebra.blade_product(factor, blade);
            if sign != 0 {
                (sources[out], signs[out]) = (blade, f64::from(sign));
            }
        }
        Some((sources, signs))
    }
}

/// Selects blades and multiplies them by signs.
#[derive(Clone, Debug)]
pub(super) struct Blades {
    sources: Index,
    signs: Tensor,
}

impl Blades {
    /// Output `i` is `signs[i]` times blade `sources[i]`, out of `blades` blades.
    pub fn new(
        (sources, signs): &(Vec<usize>, Vec<f64>),
        blades: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let values = Array::from_f64(signs, [signs.len(), 1, 1], dtype, device)?;
        Ok(Self { sources: Index::new(sources, blades, device)?, signs: Tensor::new(values) })
    }

    /// `[blades, tokens, channels]` → `[sources, tokens, channels]`.
    pub fn of(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.index_select(0, &self.sources)?.mul(&self.signs)?)
    }

    /// As [`of`](Self::of), without the signs.
    pub fn unsigned(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.index_select(0, &self.sources)?)
    }
}
