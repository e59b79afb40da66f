//! The order of blades in feature planes.

use crate::{Result, csrc::feature_planes::MOST_PLANES};
use gradewise_core::{Algebra, Error as CoreError};

/// Blades of an algebra in an order of the caller's, a plane each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    blades: Vec<u16>,
    grades: Vec<u8>,
    factors: Vec<i8>,
}

impl Order {
    /// The planes of `algebra`: for each the blade that it holds. `operation` is named in errors.
    ///
    /// # Errors
    /// A list that does not hold each blade once, or that does not begin with the scalar; more than 32 blades.
    pub fn new(operation: &'static str, algebra: &Algebra, blades: &[u16]) -> Result<Self> {
        if blades.len() != algebra.blade_count() || blades.first() != Some(&0) {
            let reason = "planes hold each blade of the algebra once, the scalar first, of at most 32";
            return Err(CoreError::Undefined { operation, reason }.into());
        }
        Self::of_some(operation, algebra, blades)
    }

    /// Planes of some blades of `algebra`, such as those of vectors.
    ///
    /// # Errors
    /// A list of no blades, or of more than 32; blades that the algebra does not have, or that occur twice.
    pub fn of_some(operation: &'static str, algebra: &Algebra, blades: &[u16]) -> Result<Self> {
        let count = algebra.blade_count();
        let is_sound =
            |(at, blade): (usize, &u16)| usize::from(*blade) < count && !blades[..at].contains(blade);
        if blades.is_empty() || blades.len() > MOST_PLANES || !blades.iter().enumerate().all(is_sound) {
            let reason = "planes hold blades of the algebra, each at most once, 1 to 32 of them";
            return Err(CoreError::Undefined { operation, reason }.into());
        }
        let of = |blade: &u16| usize::from(*blade);
        Ok(Self {
            blades: blades.to_vec(),
            grades: blades.iter().map(|blade| algebra.grades()[of(blade)]).collect(),
            factors: blades.iter().map(|blade| algebra.squared_norms()[of(blade)]).collect(),
        })
    }

    /// The blade of each plane.
    pub fn blades(&self) -> &[u16] {
        &self.blades
    }

    /// The grade of each plane.
    pub fn grades(&self) -> &[u8] {
        &self.grades
    }

    /// The scalar part of reverse(blade)·blade for each plane: −1, 0 or 1.
    pub fn factors(&self) -> &[i8] {
        &self.factors
    }

    /// The number of grades.
    pub fn grade_count(&self) -> usize {
        self.grades.iter().max().map_or(0, |&grade| usize::from(grade) + 1)
    }

    /// The planes of each grade.
    pub fn by_grade(&self) -> Vec<Vec<usize>> {
        let mut planes = vec![Vec::new(); self.grade_count()];
        for (plane, &grade) in self.grades.iter().enumerate() {
            planes[usize::from(grade)].push(plane);
        }
        planes
    }
}
