//! What counts as rounding noise.
//!
//! Noise is judged beside what entered the number in question, never beside the whole multivector. Null generators may be scaled
//! by any factor without a change of the algebra (a change of the unit of length in projective geometry), so that coefficients
//! of blades with k null generators are compared with those of at most as many. A translation of a million units says
//! nothing about how exact the rotation beside it is.

use super::Multivector;
use crate::{CliffordAlgebra, MAX_DIMENSION, Real, Scalar, blade::squares};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// How many null generators a blade has.
    fn null_degree(&self, mask: u16) -> usize {
        let signature = self.algebra.signature();
        (mask >> (signature.p + signature.q)).count_ones() as usize
    }

    /// The largest magnitude of the coefficients of blades with k null generators, for each k. Zero if one of them is not a
    /// number: [`is_finite`](Self::is_finite) tells.
    pub(crate) fn sizes(&self) -> [T; MAX_DIMENSION + 1] {
        let mut sizes = core::array::from_fn(|_| T::zero());
        for (c, &mask) in self.coefficients().iter().zip(self.algebra.masks()) {
            let size = &mut sizes[self.null_degree(mask)];
            let magnitude = c.magnitude();
            if magnitude > *size {
                *size = magnitude;
            }
        }
        sizes
    }

    /// The largest magnitude of a coefficient.
    pub(crate) fn size(&self) -> T {
        self.sizes().into_iter().fold(T::zero(), |largest, size| if size > largest { size } else { largest })
    }

    /// Divided by a power of two, so that the largest coefficient that counts for the norm is between 1 and 2 and its square
    /// neither overflows nor vanishes; and that power. Exact numbers are left alone.
    pub(crate) fn in_binary_units(&self) -> (Self, T) {
        let unit = self.sizes()[0].binary_unit();
        (self.map(|_, c| c.clone() / unit.clone()), unit)
    }

    /// Whether every coefficient is rounding noise beside those of `other` with as many null generators or fewer. NaN is not.
    pub(crate) fn is_negligible_beside(&self, other: &Self) -> bool {
        let scales = other.scales();
        let mut coefficients = self.coefficients().iter().zip(self.algebra.masks());
        coefficients.all(|(c, &mask)| c.is_negligible(&scales[self.null_degree(mask)]))
    }

    /// The largest magnitudes as in [`sizes`](Self::sizes), each at least the one before: the errors of coefficients are ulps of
    /// these.
    fn scales(&self) -> [T; MAX_DIMENSION + 1] {
        let mut scale = T::zero();
        self.sizes().map(|size| {
            if size > scale {
                scale = size;
            }
            scale.clone()
        })
    }

    /// The errors of the coefficients of a product of `self` and `right` in ulps of what enters: of the products of
    /// coefficients that have as many null generators together as the blade in question, or fewer. In the
    /// order of blades.
    pub(crate) fn scales_of_product(&self, right: &Self) -> impl Iterator<Item = T> {
        let (left, right) = (self.scales(), right.scales());
        let entering = |degree: usize| {
            let pairs = left.iter().zip(right[..=degree].iter().rev());
            pairs.fold(T::zero(), |sum, (a, b)| sum + a.clone() * b.clone())
        };
        let scales: [T; MAX_DIMENSION + 1] = core::array::from_fn(entering);
        self.algebra.masks().iter().map(move |&mask| scales[self.null_degree(mask)].clone())
    }

    /// The sum of the squares of the coefficients that count for the norm: what enters the
    /// [squared norm](Self::squared_norm).
    pub(crate) fn squared_size(&self) -> T {
        let signature = self.algebra.signature();
        self.coefficients().iter().zip(self.algebra.masks()).fold(T::zero(), |sum, (c, &mask)| {
            if squares(signature, mask) == 0 { sum } else { sum + c.clone() * c.clone() }
        })
    }

    /// reverse(x) x, if it is a scalar up to rounding. Coefficients are of the order of one
    /// ([`in_binary_units`](Self::in_binary_units)).
    pub(crate) fn scalar_norm(&self) -> Option<T> {
        let product = self.reverse().times(self);
        let mut rest = product.coefficients().iter().zip(self.scales_of_product(self)).skip(1);
        rest.all(|(c, scale)| c.is_negligible(&scale)).then(|| product.scalar_part())
    }

    /// Whether v e v⁻¹ is a vector for each generator e, up to rounding. Up to five dimensions this holds wherever
    /// reverse(v) v is a number and v is even or odd, so that nothing is computed; beyond, (1 + e123456) / √2 is an
    /// example of what is no versor.
    pub(crate) fn maps_vectors_to_vectors(&self, inverse: &Self) -> bool {
        let n = self.algebra.signature().dimension();
        n <= 5
            || (1..=n).all(|generator| {
                let Ok(e) = Self::blade_in(&self.algebra, generator, T::one()) else { return false };
                let image = self.times(&e).times(inverse);
                // A null generator shifts what has none, so that the scale is the one without it.
                let mut all = image.coefficients().iter().zip(self.scales_of_product(inverse)).enumerate();
                all.all(|(blade, (c, scale))| (1..=n).contains(&blade) || c.is_negligible(&scale))
            })
    }

    /// Whether every coefficient is finite.
    pub(crate) fn is_finite(&self) -> bool {
        // x − x is zero but for infinities and NaN.
        let finite = |c: &T| {
            let same = c.clone();
            (same - c.clone()).is_zero()
        };
        self.coefficients().iter().all(finite)
    }

    /// Every null generator n replaced by `factor` · n: an automorphism of the algebra, and a change of the unit of length in
    /// projective geometry.
    pub(crate) fn with_null_generators_scaled(&self, factor: &T) -> Self {
        self.map(|mask, c| (0..self.null_degree(mask)).fold(c.clone(), |product, _| product * factor.clone()))
    }

    /// The least power of two, 1 or more, by which null generators have to be divided for coefficients of blades with one to be of
    /// the order of one: distances in that unit are no larger. 1 for exact numbers.
    pub(crate) fn unit_of_length(&self) -> T {
        let mut unit = T::one();
        if T::EXACT || !self.is_finite() {
            return unit;
        }
        let reduced =
            |size: &T, degree: usize, unit: &T| (0..degree).fold(size.clone(), |size, _| size / unit.clone());
        for (degree, size) in self.sizes().iter().enumerate().skip(1) {
            while reduced(size, degree, &unit) >= T::one() + T::one() {
                unit = unit.clone() + unit;
            }
        }
        unit
    }
}

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// The largest difference from `other`, each relative to the coefficients of `other` with as many null generators
    /// or fewer, and at least to 1. Infinite where something is not a number.
    pub(crate) fn distance_from(&self, other: &Self) -> T {
        let mut scale = T::one();
        let scales = other.sizes().map(|size| {
            scale = scale.max(size);
            scale
        });
        let coefficients = self.coefficients().iter().zip(other.coefficients()).zip(self.algebra.masks());
        coefficients.fold(T::zero(), |largest, ((&a, &b), &mask)| {
            let difference = (a - b).abs() / scales[self.null_degree(mask)];
            if difference.is_nan() { T::infinity() } else { largest.max(difference) }
        })
    }
}
