//! Random elements of the groups that models must commute with.

use crate::{Error, Result};
use gradewise_core::Signature;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// A linear map of vectors that preserves the quadratic form of a signature: an element of O(p, q), with translations along the
/// null generators, if any. It acts on vectors as a versor of the algebra does (`u·x` = the twisted adjoint action).
#[derive(Clone, Debug, PartialEq)]
pub struct Isometry {
    dimension: usize,
    determinant: f64,
    /// `[out][in]`
    matrix: Vec<f64>,
}

impl Isometry {
    /// The product of `reflections` reflections in random hyperplanes: a rotation or boost if even, a reflection if odd.
    ///
    /// Normals near the null cone are rejected: they give boosts of large rapidity, under which vectors lose all significant digits to
    /// cancellation.
    ///
    /// # Errors
    /// [`Error::Argument`] for reflections of a signature whose generators are all null: it has no reflections.
    pub fn random<R: Rng + ?Sized>(signature: Signature, reflections: usize, rng: &mut R) -> Result<Self> {
        Self::random_fixing(signature, &[], reflections, rng)
    }

    /// As [`random`](Self::random), of the isometries that leave the generators with these numbers alone.
    ///
    /// # Errors
    /// [`Error::Argument`] for reflections where no other generator has a square other than 0.
    pub fn random_fixing<R: Rng + ?Sized>(
        signature: Signature,
        fixed: &[usize],
        reflections: usize,
        rng: &mut R,
    ) -> Result<Self> {
        let dimension = signature.dimension();
        let free = |axis: usize| !fixed.contains(&axis) && square(signature, axis) != 0.0;
        if reflections > 0 && !(0..dimension).any(free) {
            return Err(Error::Argument {
                operation: "Isometry",
                argument: "reflections",
                actual: format!("{reflections} of {signature}"),
                expected: "0: reflections need a generator that is neither null nor fixed".to_owned(),
            });
        }
        let mut matrix = vec![0.0; dimension * dimension];
        (0..dimension).for_each(|axis| matrix[axis * (dimension + 1)] = 1.0);
        let mut isometry = Self { dimension, determinant: 1.0, matrix };
        for _ in 0..reflections {
            isometry.reflect(&normal(signature, fixed, rng), signature);
        }
        Ok(isometry)
    }

    /// Composes the map with a reflection, applied after it: x − 2 (x·v)/(v·v) v.
    fn reflect(&mut self, v: &[f64], signature: Signature) {
        let dual: Vec<f64> = v.iter().enumerate().map(|(axis, v)| v * square(signature, axis)).collect();
        let squared: f64 = v.iter().zip(&dual).map(|(v, dual)| v * dual).sum();
        for column in 0..self.dimension {
            let at = |row: usize| row * self.dimension + column;
            let product: f64 = dual.iter().enumerate().map(|(row, dual)| dual * self.matrix[at(row)]).sum();
            for (row, v) in v.iter().enumerate() {
                self.matrix[at(row)] -= 2.0 * product / squared * v;
            }
        }
        self.determinant = -self.determinant;
    }

    /// 1 or −1.
    pub fn determinant(&self) -> f64 {
        self.determinant
    }

    /// The image of a vector.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of components than the signature has generators.
    pub fn apply(&self, vector: &[f64]) -> Result<Vec<f64>> {
        if vector.len() != self.dimension {
            return Err(self.refuse(vector, "components, one for each generator"));
        }
        Ok(self.image(vector))
    }

    /// Replaces each of many vectors, one after the other, by its image.
    ///
    /// # Errors
    /// [`Error::Argument`] for a number of components that is no multiple of that of generators; nothing is changed.
    pub fn apply_all(&self, vectors: &mut [f64]) -> Result<()> {
        if self.dimension == 0 || !vectors.len().is_multiple_of(self.dimension) {
            return Err(self.refuse(vectors, "components, or a multiple, for whole vectors"));
        }
        for vector in vectors.chunks_exact_mut(self.dimension) {
            let image = self.image(vector);
            vector.copy_from_slice(&image);
        }
        Ok(())
    }

    fn image(&self, vector: &[f64]) -> Vec<f64> {
        let row = |row: &[f64]| row.iter().zip(vector).map(|(a, x)| a * x).sum();
        self.matrix.chunks_exact(self.dimension.max(1)).map(row).collect()
    }

    fn refuse(&self, vectors: &[f64], expected: &str) -> Error {
        Error::Argument {
            operation: "Isometry",
            argument: "vector",
            actual: format!("{} components", vectors.len()),
            expected: format!("{} {expected}", self.dimension),
        }
    }
}

/// The square of a generator.
fn square(signature: Signature, axis: usize) -> f64 {
    let (p, q) = (usize::from(signature.p), usize::from(signature.q));
    if axis < p {
        1.0
    } else if axis < p + q {
        -1.0
    } else {
        0.0
    }
}

fn normal<R: Rng + ?Sized>(signature: Signature, fixed: &[usize], rng: &mut R) -> Vec<f64> {
    loop {
        let mut v: Vec<f64> = (0..signature.dimension()).map(|_| StandardNormal.sample(rng)).collect();
        for (axis, component) in v.iter_mut().enumerate() {
            if fixed.contains(&axis) {
                *component = 0.0;
            }
        }
        let terms = || v.iter().enumerate().map(|(axis, v)| square(signature, axis) * v * v);
        let (form, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
        if form.abs() > 0.8 * size {
            return v;
        }
    }
}

/// ‖a − b‖ / ‖b‖; infinite if either is not finite, or `b` is zero and `a` is not.
pub fn relative_distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() || a.iter().chain(b).any(|value| !value.is_finite()) {
        return f64::INFINITY;
    }
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    let size: f64 = b.iter().map(|b| b * b).sum();
    match (difference / size).sqrt() {
        _ if difference == 0.0 => 0.0,
        // The squares of both have overflowed, so the distance is unknown and counts as infinite.
        distance if distance.is_nan() => f64::INFINITY,
        distance => distance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::{Algebra, Multivector};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn products_of_vectors_are_preserved_and_orientation_is_known() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (p, q) in [(1, 0), (3, 0), (5, 0), (1, 3), (2, 2)] {
            let signature = Signature::new(p, q, 0);
            let n = signature.dimension();
            let form = |a: &[f64], b: &[f64]| -> f64 {
                (0..n).map(|axis| square(signature, axis) * a[axis] * b[axis]).sum()
            };
            for reflections in 0..=n {
                let isometry = Isometry::random(signature, reflections, &mut rng).unwrap();
                assert_eq!(isometry.determinant(), if reflections % 2 == 0 { 1.0 } else { -1.0 });
                let mut vectors: Vec<f64> = (0..2 * n).map(|_| StandardNormal.sample(&mut rng)).collect();
                let before = form(&vectors[..n], &vectors[n..]);
                isometry.apply_all(&mut vectors).unwrap();
                let after = form(&vectors[..n], &vectors[n..]);
                assert!((before - after).abs() < 1e-10, "{signature}: {before} {after}");
            }
        }
    }

    #[test]
    fn fixed_axes_stay_where_they_are() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for fixed in [&[][..], &[0], &[3], &[0, 3]] {
            let isometry = Isometry::random_fixing(Signature::STA, fixed, 3, &mut rng).unwrap();
            for axis in 0..4 {
                let mut x = [0.0; 4];
                x[axis] = 1.0;
                let moved = relative_distance(&isometry.apply(&x).unwrap(), &x);
                assert_eq!(moved == 0.0, fixed.contains(&axis), "{axis} of {fixed:?} moved by {moved}");
            }
        }
        assert!(Isometry::random_fixing(Signature::STA, &[0, 1, 2, 3], 1, &mut rng).is_err());
    }

    /// Checked against the algebra, in which a reflection is x ↦ −v x v⁻¹.
    #[test]
    fn a_reflection_is_the_action_of_a_versor() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for signature in [Signature::CL3, Signature::STA, Signature::PGA3] {
            let algebra = Algebra::new(signature).unwrap();
            let n = signature.dimension();
            let v = normal(signature, &[], &mut rng);
            let versor: Multivector<Algebra, f64> = algebra.vector(&v).unwrap();
            let mut isometry = Isometry::random(signature, 0, &mut rng).unwrap();
            isometry.reflect(&v, signature);
            let x: Vec<f64> = (0..n).map(|_| StandardNormal.sample(&mut rng)).collect();
            let moved = versor.sandwich(&algebra.vector(&x).unwrap()).unwrap();
            let error = relative_distance(&isometry.apply(&x).unwrap(), &moved.coefficients()[1..=n]);
            assert!(error < 1e-12, "{signature}: {error:e}");
        }
    }

    #[test]
    fn vectors_of_other_lengths_and_reflections_that_there_are_not_are_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let isometry = Isometry::random(Signature::CL3, 2, &mut rng).unwrap();
        for length in [0, 2, 4] {
            let error = isometry.apply(&vec![1.0; length]).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{length} components")) && error.contains("expected 3"),
                "{error}"
            );
        }
        let mut vectors = vec![1.0; 7];
        assert!(isometry.apply_all(&mut vectors).is_err());
        assert_eq!(vectors, [1.0; 7]);
        assert!(isometry.apply_all(&mut vectors[..6]).is_ok());
        let null = Signature::new(0, 0, 2);
        assert!(Isometry::random(null, 1, &mut rng).unwrap_err().to_string().contains("null"));
        assert_eq!(Isometry::random(null, 0, &mut rng).unwrap().apply(&[3.0, 4.0]).unwrap(), [3.0, 4.0]);
    }

    #[test]
    fn distances_of_what_is_not_finite_are_not_small() {
        assert_eq!(relative_distance(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(relative_distance(&[f64::NAN], &[f64::NAN]), f64::INFINITY);
        assert_eq!(relative_distance(&[1.0], &[0.0]), f64::INFINITY);
        assert_eq!(relative_distance(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(relative_distance(&[1e200], &[-1e200]), f64::INFINITY);
    }
}
