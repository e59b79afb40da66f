//! Which multivectors are rotors, and the rotor next to one that almost is.

use super::Multivector;
use crate::{CliffordAlgebra, Real};
use num_traits::Float;

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// Whether this is even with reverse(R) R = 1, and beyond five dimensions maps vectors to vectors; each up to 2¹² ulps of
    /// what enters. A squared norm outside of ½ to 3/2 is refused however much enters.
    pub(crate) fn is_rotor(&self) -> bool {
        let (even, one) = (self.even_part(), T::one());
        if !self.is_finite() || !self.odd_part().is_negligible_beside(&even) {
            return false;
        }
        let Some(norm) = even.scalar_norm() else { return false };
        let error = Float::abs(norm - one);
        let entering = Float::max(even.squared_size(), one);
        error < T::from_f64(0.5)
            && error.is_negligible(&entering)
            && even.maps_vectors_to_vectors(&even.reverse())
    }

    /// The rotor next to this, which is one up to rounding: R / √(reverse(R) R), with all parts of the root (the norm of dual
    /// quaternions in Cl(3,0,1), Study's), not the scalar one alone.
    pub(crate) fn nearest_rotor(&self) -> Option<Self> {
        let mut rotor = self.even_part();
        if !rotor.is_finite() {
            return None;
        }
        // Boosts need more: the squares of their coefficients cancel to 1, with the errors of the coefficients many times over.
        let signature = self.algebra().signature();
        let boosts = signature.p > 0 && signature.q > 0;
        let noise = T::epsilon() * T::from_f64(if boosts { 64.0 } else { 4.0 });
        // The scalar part first, for what is further from a rotor than Newton's method reaches.
        let square = rotor.squared_norm();
        if square.is_nan() || square <= T::zero() {
            return None;
        }
        if Float::abs(square - T::one()) > noise * Float::max(rotor.squared_size(), T::one()) {
            rotor = rotor.scaled(&Float::recip(Float::sqrt(square)));
        }
        // R (3 − N) / 2 with N = reverse(R) R is Newton's step for R / √N: it squares the distance of N from 1. Parts with
        // null generators are right after one step, however large they are. Noise is left alone: it would only be replaced, and the root
        // of a norm that boosts have all but cancelled is no better than the norm.
        for _ in 0..12 {
            let excess = rotor.reverse().times(&rotor).plus_scalar(-T::one());
            let scales = rotor.scales_of_product(&rotor);
            if excess.coefficients().iter().zip(scales).all(|(c, scale)| Float::abs(*c) <= noise * scale) {
                break;
            }
            rotor = rotor.difference(&rotor.times(&excess).scaled(&T::from_f64(0.5)));
        }
        // In a unit of length in which no rounding error of a translation counts beside what is to be found.
        let length = rotor.unit_of_length();
        let near = rotor.with_null_generators_scaled(&Float::recip(length)).mapping_vectors_to_vectors();
        [near.with_null_generators_scaled(&length), rotor].into_iter().find(Self::is_rotor)
    }

    /// How far reverse(R) R is from 1, in terms of what enters.
    pub(super) fn distance_from_rotors(&self) -> T {
        let excess = self.reverse().times(self).plus_scalar(-T::one());
        let pairs = excess.coefficients().iter().zip(self.scales_of_product(self));
        pairs.fold(T::zero(), |largest, (c, scale)| {
            if scale > T::zero() { Float::max(largest, Float::abs(*c) / scale) } else { largest }
        })
    }

    /// Removes what keeps an even element with reverse(R) R = 1 from being a rotor beyond five dimensions, to
    /// first order: a factor 1 + ε with ε of grade 6.
    ///
    /// For a rotor, x R e⁻¹ = R with x = R e reverse(R) the image of the generator e. With a factor 1 + ε it is R (1 + e ε e⁻¹)
    /// instead, and e ε e⁻¹ is −ε for the generators of a blade of ε, and ε for the others.
    fn mapping_vectors_to_vectors(self) -> Self {
        let signature = self.algebra().signature();
        let metric = signature.p + signature.q;
        if signature.dimension() <= 5 || metric == 0 {
            return self;
        }
        let mut rotor = self;
        for _ in 0..12 {
            let reverse = rotor.reverse();
            let mut change = Self::zero_in(rotor.algebra());
            for generator in 1..=usize::from(metric) {
                let Ok(e) = Self::blade_in(rotor.algebra(), generator, T::one()) else { return rotor };
                let square = e.times(&e).scalar_part();
                let image = rotor.times(&e).times(&reverse).grade(1);
                change = change.sum(&image.times(&rotor).times(&e).scaled(&square).difference(&rotor));
            }
            // The sum over generators is −2 j ε for a blade with j of the generators that are not null, 6 at most.
            let change = change.scaled(&T::from_f64(1.0 / 12.0));
            let size = change.distance_from(&Self::zero_in(rotor.algebra()));
            let scale = Float::max(T::one(), rotor.sizes()[0]);
            if size.is_nan() || size <= T::epsilon() * T::from_f64(16.0) * scale * scale {
                break;
            }
            rotor = rotor.sum(&change);
        }
        rotor
    }
}
