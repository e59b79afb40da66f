//! Parts of a multivector by grade.

use super::Multivector;
use crate::{CliffordAlgebra, Scalar};
use alloc::vec::Vec;

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The part of grade `grade`, ⟨x⟩ₖ; zero beyond n.
    pub fn grade(&self, grade: usize) -> Self {
        self.select(|k| k == grade)
    }

    /// The even part, Σ ⟨x⟩₂ₖ.
    pub fn even_part(&self) -> Self {
        self.select(|k| k % 2 == 0)
    }

    /// The odd part, Σ ⟨x⟩₂ₖ₊₁.
    pub fn odd_part(&self) -> Self {
        self.select(|k| k % 2 == 1)
    }

    /// The scalar part ⟨x⟩₀ as a number.
    pub fn scalar_part(&self) -> T {
        self.coefficients().first().cloned().unwrap_or_else(T::zero)
    }

    /// The components of the vector part ⟨x⟩₁ along e1..en.
    pub fn vector_part(&self) -> &[T] {
        let dimension = self.algebra.signature().dimension();
        self.coefficients().get(1..=dimension).unwrap_or_default()
    }

    /// The grades with a coefficient other than zero, ascending.
    pub fn grades(&self) -> Vec<usize> {
        let present = self.present_grades();
        (0..=self.algebra.signature().dimension()).filter(|grade| present >> grade & 1 == 1).collect()
    }

    /// The grades with a coefficient other than zero as a bit set.
    pub(crate) fn present_grades(&self) -> u16 {
        let coefficients = self.coefficients().iter().zip(self.algebra.masks());
        coefficients.fold(0, |set, (c, mask)| if c.is_zero() { set } else { set | 1 << mask.count_ones() })
    }

    /// The part in the grades that `keep` accepts.
    pub(crate) fn select(&self, keep: impl Fn(usize) -> bool) -> Self {
        self.map(|mask, c| if keep(mask.count_ones() as usize) { c.clone() } else { T::zero() })
    }
}
