//! Logarithms from the action on vectors, for rotors of any dimension and close to anything.
//!
//! The action M of R on vectors has a principal logarithm X unless it reverses a direction. X is the action of a bivector B by
//! commutation, and exp(B) is R or −R. In the latter case a full turn in a plane that R maps to itself is added: one that R
//! leaves alone, or one in which it turns. Where M reverses directions or planes are not determined, the same is done for
//! rotors close to R; Newton's method leads from their logarithms to one of R.

use super::{Multivector, matrix::Matrix, newton::Refined};
use crate::{CliffordAlgebra, Real};
use alloc::{vec, vec::Vec};

/// How many rotors close to R are tried, R itself included.
pub(super) const ATTEMPTS: u32 = 14;

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// Bivectors close to logarithms of the rotor R: of R itself for `attempt` 0, of some rotor close by for others.
    pub(super) fn log_candidates(&self, attempt: u32) -> Vec<Self> {
        let moved = if attempt == 0 { self.clone() } else { self.times(&self.small_rotor(attempt)) };
        let action = moved.action_on_vectors();
        let Some(generator) = action.logarithm() else { return Vec::new() };
        let log = self.bivector_of(&generator);
        // Vectors do not tell parts of two null generators, and neither do these tell the sign.
        let exponential = log.without_null_generators().exp_of_bivector();
        let turned = moved.without_null_generators();
        let half = T::from_f64(0.5);
        if exponential.distance_from(&turned) < half {
            return vec![log];
        }
        if exponential.distance_from(&-&turned) >= half {
            return Vec::new();
        }
        // To full precision: the planes in which it turns matter, however little it does.
        let Some(log) = Refined::all_of(log, &-&moved).pop().map(Refined::into_log) else {
            return Vec::new();
        };
        let full_turn = T::from_f64(core::f64::consts::PI);
        let fixed = self.action_on_vectors().plus_identity(-T::one()).kernel(T::epsilon().sqrt());
        let mut candidates: Vec<Self> = Vec::new();
        if let Some(plane) = self.definite_plane(&fixed) {
            candidates.push(log.sum(&plane.scaled(&full_turn)));
        }
        for plane in log.turning_planes() {
            // Against the turn first, which leaves less than half a turn.
            candidates.push(log.difference(&plane.scaled(&full_turn)));
            candidates.push(log.sum(&plane.scaled(&full_turn)));
        }
        candidates
    }

    /// A rotor close to 1, another for each `attempt`: by exp of a bivector without null generators, with components from a
    /// linear congruential generator.
    fn small_rotor(&self, attempt: u32) -> Self {
        let n = self.algebra().signature().dimension();
        let mut state = 0x9e37_79b9_u32.wrapping_mul(attempt);
        let mut bivector = Self::zero_in(self.algebra());
        let size = if attempt % 2 == 1 { 1e-3 } else { 3e-2 };
        for c in bivector.coefficients_mut().iter_mut().skip(n + 1).take(n * n.saturating_sub(1) / 2) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *c = T::from_f64(size * (f64::from(state >> 8) / f64::from(1u32 << 23) - 1.0));
        }
        bivector.without_null_generators().exp_of_bivector()
    }

    fn vector_of(&self, components: &[T]) -> Self {
        let mut vector = Self::zero_in(self.algebra());
        for (c, &component) in vector.coefficients_mut().iter_mut().skip(1).zip(components) {
            *c = component;
        }
        vector
    }

    /// The matrix of e ↦ R e reverse(R).
    fn action_on_vectors(&self) -> Matrix<T> {
        let n = self.algebra().signature().dimension();
        let reverse = self.reverse();
        let images: Vec<Self> = (1..=n)
            .filter_map(|generator| Self::blade_in(self.algebra(), generator, T::one()).ok())
            .map(|e| self.times(&e).times(&reverse))
            .collect();
        Matrix::new(n, |row, column| images[column].coefficients()[row + 1])
    }

    /// The matrix of e ↦ B e − e B of a bivector B.
    fn action_by_commutation(&self) -> Matrix<T> {
        let n = self.algebra().signature().dimension();
        let images: Vec<Self> = (1..=n)
            .filter_map(|generator| Self::blade_in(self.algebra(), generator, T::one()).ok())
            .map(|e| self.times(&e).difference(&e.times(self)))
            .collect();
        Matrix::new(n, |row, column| images[column].coefficients()[row + 1])
    }

    /// The bivector B with B e − e B = X e. Its parts of two null generators, which commute with all vectors, are zero.
    fn bivector_of(&self, generator: &Matrix<T>) -> Self {
        let signature = self.algebra().signature();
        let n = generator.size;
        let square = |index: usize| {
            if index < usize::from(signature.p) {
                T::one()
            } else if index < usize::from(signature.p + signature.q) {
                -T::one()
            } else {
                T::zero()
            }
        };
        let mut bivector = Self::zero_in(self.algebra());
        let mut blade = n + 1;
        let half = T::from_f64(0.5);
        for a in 0..n {
            for b in a + 1..n {
                // e_ab e_b − e_b e_ab = 2 e_b² e_a, and e_ab e_a − e_a e_ab = −2 e_a² e_b. Null generators come last.
                let along_a = generator.at(a, b) * square(b) * half;
                let along_b = -generator.at(b, a) * square(a) * half;
                let both = !square(a).is_zero() && !square(b).is_zero();
                let sum = along_a + along_b;
                bivector.coefficients_mut()[blade] = if both { sum * half } else { sum };
                blade += 1;
            }
        }
        bivector
    }

    /// A plane with the square −1 in the span of `vectors`.
    fn definite_plane(&self, vectors: &[Vec<T>]) -> Option<Self> {
        let vectors: Vec<Self> = vectors.iter().map(|v| self.vector_of(v)).collect();
        [T::one(), -T::one()].into_iter().find_map(|sign| {
            let first = self.longest(&vectors, sign)?;
            // What is perpendicular to the first.
            let rest: Vec<Self> = vectors
                .iter()
                .map(|v| v.difference(&first.scaled(&(sign * v.times(&first).scalar_part()))))
                .collect();
            let second = self.longest(&rest, sign)?;
            Some(first.times(&second).grade(2))
        })
    }

    /// A unit vector whose square is `sign` in the span of `vectors`, of which sums and differences of two are looked at.
    fn longest(&self, vectors: &[Self], sign: T) -> Option<Self> {
        let pairs = vectors.iter().enumerate().flat_map(|(at, v)| {
            let others = vectors[at + 1..].iter();
            core::iter::once(v.clone()).chain(others.flat_map(move |w| [v.sum(w), v.difference(w)]))
        });
        let squared = pairs.map(|v| (v.squared_norm() * sign, v));
        let longest = squared.fold((T::from_f64(1e-3), None), |(square, best), (other, v)| {
            if other > square { (other, Some(v)) } else { (square, best) }
        });
        longest.1?.normalized().ok()
    }

    /// The planes in which exp(B) turns, each with the square −1 and oriented as B. Beyond five dimensions from the action X of
    /// B on vectors: the squares c of the eigenvalues of X are the roots of a polynomial, and the product of (X² − c′) over the
    /// other roots leaves the plane of c.
    fn turning_planes(&self) -> Vec<Self> {
        let turns = |plane: &Self| plane.times(plane).scalar_part() < T::zero();
        if self.algebra().signature().dimension() <= 5 {
            let planes = self.invariant_decomposition().unwrap_or_default();
            return planes.into_iter().filter_map(|plane| plane.normalized().ok()).filter(turns).collect();
        }
        let generator = self.action_by_commutation();
        let n = generator.size;
        let size = generator.largest();
        if size.is_zero() || !size.is_finite() {
            return Vec::new();
        }
        let generator = &generator.scaled(size.recip());
        let square = generator.times(generator);
        let roots = squared_eigenvalues(generator);
        let negative = |&(re, im): &(T, T)| re < T::zero() && im.abs() <= T::from_f64(1e-3) * re.abs();
        let mut planes = Vec::new();
        for at in (0..roots.len()).filter(|&at| negative(&roots[at])) {
            // (X² − c′) (X² − c̄′) for pairs of conjugates, as their real product.
            let mut projector = Matrix::identity(n);
            for (other, &(re, im)) in roots.iter().enumerate() {
                let complex = im.abs() > T::from_f64(1e-6) * re.abs();
                if other == at || (complex && im < T::zero()) {
                    continue;
                }
                let factor = square.plus_identity(-re);
                let factor = if complex { factor.times(&factor).plus_identity(im * im) } else { factor };
                projector = projector.times(&factor.scaled(factor.largest().max(T::epsilon()).recip()));
            }
            if n % 2 == 1 || self.algebra().signature().r > 0 {
                projector = projector.times(&square);
            }
            let column = |index: usize| (0..n).map(|row| projector.at(row, index)).collect::<Vec<T>>();
            let size = |v: &[T]| v.iter().fold(T::zero(), |sum, &x| sum + x * x);
            let Some(u) = (0..n)
                .map(column)
                .max_by(|a, b| size(a).partial_cmp(&size(b)).unwrap_or(core::cmp::Ordering::Equal))
            else {
                continue;
            };
            let image = generator.apply(&u);
            let plane = self.vector_of(&image).times(&self.vector_of(&u)).grade(2);
            // B u − u B = X u with the plane B = β (X u) ∧ u, where the square of u has the sign of β.
            let sign = self.vector_of(&u).squared_norm();
            let plane = if sign < T::zero() { -&plane } else { plane };
            let Ok(plane) = plane.normalized() else { continue };
            if turns(&plane) {
                planes.push(plane);
            }
        }
        planes
    }
}

/// The squares of the eigenvalues of a matrix whose characteristic polynomial is even but for a power, as (real, imaginary) parts:
/// that polynomial by Faddeev and LeVerrier, its roots by Durand and Kerner.
fn squared_eigenvalues<T: Real>(matrix: &Matrix<T>) -> Vec<(T, T)> {
    let n = matrix.size;
    let degree = n / 2;
    // λⁿ + c₂ λⁿ⁻² + c₄ λⁿ⁻⁴ + …
    let mut coefficients = vec![T::one()];
    let mut power = matrix.clone();
    for k in 1..=2 * degree {
        let c = -power.trace() / T::from_f64(k as f64);
        if k % 2 == 0 {
            coefficients.push(c);
        }
        power = matrix.times(&power.plus_identity(c));
    }
    let multiply = |(a, b): (T, T), (c, d): (T, T)| (a * c - b * d, a * d + b * c);
    let scale = coefficients.iter().fold(T::one(), |scale, c| scale.max(c.abs()));
    let start = (T::from_f64(0.4), T::from_f64(0.9));
    let mut roots = vec![(scale.powf(T::from_f64((degree.max(1) as f64).recip())), T::zero())];
    roots.truncate(degree);
    while roots.len() < degree {
        let last = roots[roots.len() - 1];
        roots.push(multiply(last, start));
    }
    for _ in 0..200 {
        let mut change = T::zero();
        for at in 0..degree {
            let z = roots[at];
            let value = coefficients.iter().fold((T::zero(), T::zero()), |sum, &c| {
                let (re, im) = multiply(sum, z);
                (re + c, im)
            });
            let others = roots.iter().enumerate().filter(|&(other, _)| other != at);
            let (re, im) = others.fold((T::one(), T::zero()), |product, (_, &root)| {
                multiply(product, (z.0 - root.0, z.1 - root.1))
            });
            let size = re * re + im * im;
            if size.is_zero() {
                continue;
            }
            let (step_re, step_im) = multiply(value, (re / size, -im / size));
            roots[at] = (z.0 - step_re, z.1 - step_im);
            change = change.max(step_re.abs()).max(step_im.abs());
        }
        if change.is_nan() || change <= T::epsilon() * T::from_f64(4.0) * scale {
            break;
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use crate::{Algebra, Signature};

    /// In six dimensions a bivector turns in three planes, each of which commutes with it.
    #[test]
    fn planes_of_six_dimensions_commute() {
        let algebra = Algebra::new(Signature::new(6, 0, 0)).unwrap();
        for text in ["e12 + 2e34 + 0.3e56", "e12 + 0.5e23 - 0.7e14 + 1.1e35 + 0.2e56 - 0.9e46"] {
            let bivector = algebra.parse::<f64>(text).unwrap();
            let planes = bivector.turning_planes();
            assert_eq!(planes.len(), 3, "{text}");
            for plane in planes {
                assert!((plane.times(&plane).scalar_part() + 1.0).abs() < 1e-12, "{text}: {plane}");
                let rest = plane.times(&bivector).difference(&bivector.times(&plane));
                assert!(rest.size() < 1e-9, "{text}: {plane} leaves {rest}");
            }
        }
    }
}
