//! Bivectors as sums of commuting planes.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result};
use alloc::{vec, vec::Vec};

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The commuting simple bivectors whose sum this bivector is: none for zero, one for a simple bivector, two otherwise,
    /// the one with the larger |B²| first. Their exponentials are the rotation, boost or translation in each plane, and
    /// multiply in any order to the exponential of the sum (the invariant decomposition; Roelfs and De Keninck, "Graded
    /// symmetry groups: plane and simple", 2021).
    ///
    /// Two planes that turn equally fast (isoclinic rotations) are not determined by their sum; some pair is returned.
    ///
    /// ```
    /// use gradewise_core::{Multivector, Pga3};
    ///
    /// // A screw: the rotation about its axis, and the translation along it.
    /// let screw: Multivector<Pga3, f64> = "2e12 + 3e34 + 4e14".parse()?;
    /// let planes = screw.invariant_decomposition()?;
    /// assert_eq!(planes, ["2e12 + 4e14".parse()?, "3e34".parse()?]);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Undefined`] for anything but a bivector; for one of more than two planes, which takes six dimensions; and
    /// for the few in indefinite and degenerate algebras that are no sum of commuting planes, such as those of Cl(2,2,0)
    /// that spiral. [`exp`](Self::exp) needs no decomposition.
    pub fn invariant_decomposition(&self) -> Result<Vec<Self>> {
        let undefined = |reason| Error::Undefined { operation: "invariant decomposition", reason };
        let bivector = self.bivector_only().ok_or_else(|| undefined("only bivectors have one"))?;
        let scale = bivector.scale();
        if bivector.is_zero() {
            return Ok(Vec::new());
        }
        let square = bivector.times(&bivector);
        let (s, pitch) = (square.scalar_part(), square.grade(4));
        if pitch.scale().is_negligible(&(scale * scale)) {
            return Ok(vec![bivector]);
        }
        let sigma = pitch
            .square_if_scalar(scale)
            .ok_or_else(|| undefined("the bivector has more than two planes (⟨B²⟩₄² is no number)"))?;
        // The squares a and b of the planes: a + b = s and 4ab = σ.
        let half = T::from_f64(0.5);
        let gap = (s * s - sigma).max(T::zero()).sqrt();
        let a = (if s < T::zero() { s - gap } else { s + gap }) * half;
        // At most half of the digits are lost to the division by a − b.
        let planes = if gap > T::epsilon().sqrt() * scale {
            let b = s - a;
            // ⟨B²⟩₄ B = 2 (a B₂ + b B₁).
            let turned = pitch.times(&bivector).scaled(&half).grade(2);
            let first = bivector.scaled(&a).difference(&turned).scaled(&(a - b).recip());
            let second = bivector.difference(&first);
            Some((first, second))
        } else {
            bivector.isoclinic_planes()
        };
        let refused = "the bivector is no sum of commuting planes; exp does not need them";
        let (first, second) =
            planes.filter(|(a, b)| a.commutes_as_planes(b, scale)).ok_or_else(|| undefined(refused))?;
        Ok(vec![first, second])
    }

    /// The planes of an isoclinic bivector B: the plane of a vector v and its image v ⌋ B, and the remainder of B.
    fn isoclinic_planes(&self) -> Option<(Self, Self)> {
        let candidates = (1..=self.algebra.signature().dimension()).filter_map(|generator| {
            let v = Self::blade_in(&self.algebra, generator, T::one()).ok()?;
            let image = v.times(self).grade(1);
            let square = v.times(&v).scalar_part();
            let plane = v.times(&image).grade(2).scaled(&square);
            let quality = image.squared_norm().abs();
            Some((plane, quality))
        });
        let best = candidates.max_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal));
        best.map(|(plane, _)| {
            let rest = self.difference(&plane);
            (plane, rest)
        })
    }

    /// Whether both are simple and commute, up to rounding relative to coefficients of order √`scale`.
    fn commutes_as_planes(&self, other: &Self, scale: T) -> bool {
        // Both sides are sums of squares, so the relative tolerance is √ε: a decomposition may lose half of the digits.
        let vanishes = |x: Self| x.scale() <= T::epsilon() * scale * scale;
        vanishes(self.times(self).grade(4))
            && vanishes(other.times(other).grade(4))
            && vanishes(self.times(other).difference(&other.times(self)))
    }
}
