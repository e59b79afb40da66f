//! Bivectors as sums of commuting planes.

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result};
use alloc::{vec, vec::Vec};

/// What is lost of a bivector taken for simple, in ulps of what enters B ∧ B.
const SIMPLE: f64 = 16.0;

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The commuting simple bivectors whose sum this bivector is: none for zero, one for a simple bivector, two otherwise,
    /// the one with the larger |B²| first. Their exponentials are the rotation, boost or translation in each plane, and
    /// multiply in any order to the exponential of the sum (the invariant decomposition; Roelfs and De Keninck, "Graded
    /// symmetry groups: plane and simple", 2021).
    ///
    /// Two planes that turn equally fast (isoclinic rotations) are not determined by their sum; some pair is returned.
    /// A bivector is taken for simple if B ∧ B is at most 16 ulps of what enters it. In projective algebras the line of a
    /// screw may lie at any distance: its distance d costs the pitch d ulps, as in the bivector itself.
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
        let bivector = self
            .bivector_only()
            .filter(Self::is_finite)
            .ok_or_else(|| undefined("only bivectors with finite coefficients have one"))?;
        if bivector.is_zero() {
            return Ok(Vec::new());
        }
        // Of the order of one in every unit, so that no square overflows or vanishes.
        let (near, unit) = bivector.in_binary_units();
        let length = near.unit_of_length();
        let near = near.with_null_generators_scaled(&length.recip());
        let planes = near.planes().map_err(undefined)?;
        let back = |plane: Self| plane.with_null_generators_scaled(&length).scaled(&unit);
        Ok(planes.into_iter().map(back).collect())
    }

    /// Whether B ∧ B is zero up to 2¹² ulps of what enters it, for a bivector B.
    pub(crate) fn is_simple(&self) -> bool {
        self.is_simple_up_to(T::from_f64(4096.0))
    }

    /// Whether each coefficient of B ∧ B is at most `ulps` of the sum of magnitudes that it is the sum of. Coefficients of B
    /// that do not enter it do not count: the distance of a screw's axis along one direction says nothing of its pitch along
    /// another.
    fn is_simple_up_to(&self, ulps: T) -> bool {
        let square = self.times(self).grade(4);
        let (masks, positions) = (self.algebra().masks(), self.algebra().positions());
        let mut entering = Self::zero_in(self.algebra());
        for (a, &left) in self.coefficients().iter().zip(masks) {
            for (b, &right) in self.coefficients().iter().zip(masks).filter(|&(_, right)| left & right == 0) {
                entering.coefficients_mut()[usize::from(positions[usize::from(left ^ right)])] +=
                    (*a * *b).abs();
            }
        }
        let mut pairs = square.coefficients().iter().zip(entering.coefficients());
        pairs.all(|(c, &scale)| c.abs() <= ulps * T::epsilon() * scale)
    }

    /// The planes of a bivector with coefficients of the order of one, or why there are none.
    fn planes(self) -> core::result::Result<Vec<Self>, &'static str> {
        if self.is_simple_up_to(T::from_f64(SIMPLE)) {
            return Ok(vec![self]);
        }
        let square = self.times(&self);
        let (s, pitch) = (square.scalar_part(), square.grade(4));
        let sigma =
            pitch.square_if_scalar().ok_or("the bivector has more than two planes (⟨B²⟩₄² is no number)")?;
        // The squares a and b of the planes: a + b = s and 4ab = σ.
        let half = T::from_f64(0.5);
        let gap = (s * s - sigma).max(T::zero()).sqrt();
        let planes = if gap > s.abs() * half {
            let a = (if s < T::zero() { s - gap } else { s + gap }) * half;
            // b without the cancellation of s − a.
            let b = sigma / (T::from_f64(4.0) * a);
            // ⟨B²⟩₄ B = 2 (a B₂ + b B₁).
            let turned = pitch.times(&self).scaled(&half).grade(2);
            let first = self.scaled(&a).difference(&turned).scaled(&(a - b).recip());
            let second = self.difference(&first);
            Some((first, second))
        } else {
            self.nearly_isoclinic_planes(&pitch, sigma)
        };
        let refused = "the bivector is no sum of commuting planes; exp does not need them";
        let (first, second) = planes.filter(|(a, b)| a.commutes_as_plane_with(b)).ok_or(refused)?;
        Ok(vec![first, second])
    }

    /// The planes of a bivector B with squares close to each other. The unit J = ⟨B²⟩₄ / √σ has the square 1, and ½ (1 ± J)
    /// split B into two isoclinic bivectors B₊ and B₋ whose units, added and subtracted, are twice the units of the planes: no digit
    /// is lost unless B₋ vanishes.
    fn nearly_isoclinic_planes(&self, pitch: &Self, sigma: T) -> Option<(Self, Self)> {
        if sigma <= T::zero() {
            return self.isoclinic_planes();
        }
        let (half, two) = (T::from_f64(0.5), T::from_f64(2.0));
        let unit = pitch.scaled(&sigma.sqrt().recip());
        // Twice: rounding errors beside the larger part are no longer in the smaller one.
        let split = |x: &Self, sign: T| x.sum(&unit.times(x).grade(2).scaled(&sign)).scaled(&half);
        let part = |sign: T| split(&split(self, sign), sign);
        let (sum, difference) = (part(T::one()), part(-T::one()));
        // The square of a part is a number times ½ (1 ± J).
        let square = |part: &Self| part.times(part).scalar_part() * two;
        let (u, v) = (square(&sum), square(&difference));
        let (large, u, small, v) =
            if u.abs() >= v.abs() { (sum, u, difference, v) } else { (difference, v, sum, u) };
        if small.size() <= T::from_f64(SIMPLE) * T::epsilon() * self.size() {
            return self.isoclinic_planes();
        }
        if u * v <= T::zero() {
            return None;
        }
        let (m, n) = (u.abs().sqrt(), v.abs().sqrt());
        let (x, y) = (large.scaled(&m.recip()), small.scaled(&n.recip()));
        let plane = |unit: Self, length: T| unit.scaled(&(length * half));
        Some((plane(x.sum(&y), m + n), plane(x.difference(&y), m - n)))
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

    /// Whether both are simple and commute, up to half of the digits.
    fn commutes_as_plane_with(&self, other: &Self) -> bool {
        let near = T::epsilon().sqrt();
        let scale = self.size().max(other.size());
        let vanishes = |x: Self| x.is_finite() && x.size() <= near * scale * scale;
        vanishes(self.times(self).grade(4))
            && vanishes(other.times(other).grade(4))
            && vanishes(self.times(other).difference(&other.times(self)))
    }
}
