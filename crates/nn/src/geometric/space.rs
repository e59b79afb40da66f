//! Which algebra, and which maps of multivectors its group leaves room for.

use crate::{Error, Result};
use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device, Index};

/// The algebra of a geometric network and the group it is equivariant under.
///
/// Linear maps that commute with the whole Pin group act on grades; with a null generator e₀, which every motion leaves alone, there are
/// those of e₀x besides. Where orientation is to be seen, the pseudoscalar takes that place: then reflections are symmetries no more.
#[derive(Clone, Debug)]
pub struct Space {
    algebra: Algebra,
    /// The blade that multiplies from the left, if one does.
    factor: Option<usize>,
}

impl Space {
    /// Points, lines, planes and motions of space: Cl(3,0,1) under E(3), reflections included. Nine linear maps: five of grades, four of
    /// e₀x.
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

    /// The space of `signature`, which has no null generators, with orientation: under even versors alone.
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

    /// Whether points are trivectors of a projective algebra of space, between which there are distances.
    pub fn has_points(&self) -> bool {
        self.algebra.signature() == Signature::PGA3
    }

    /// Blades that do not vanish in ⟨x̃x⟩, and their signs there.
    pub(super) fn invariant(&self) -> (Vec<usize>, Vec<f64>) {
        let squares = self.algebra.squared_norms().iter().enumerate();
        squares.filter(|(_, square)| **square != 0).map(|(blade, &square)| (blade, f64::from(square))).unzip()
    }

    /// The lowest grade that the factor times something reaches, if there is a factor.
    pub(super) fn reached(&self) -> Option<usize> {
        let factor = self.factor?;
        let grade = |(out, sign): (usize, i8)| (sign != 0).then(|| usize::from(self.algebra.grades()[out]));
        (0..self.algebra.blade_count())
            .filter_map(|blade| grade(self.algebra.blade_product(factor, blade)))
            .min()
    }

    /// The blade each result of the factor's product comes from, and its sign, 0 where nothing comes.
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

/// Some of the blades, with signs.
#[derive(Clone, Debug)]
pub(super) struct Blades {
    sources: Index,
    signs: Tensor,
}

impl Blades {
    /// `signs[i]` times blade `sources[i]`, of `blades`.
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
