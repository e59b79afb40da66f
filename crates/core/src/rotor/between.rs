//! Rotors from one vector to another.

use super::Rotor;
use crate::{CliffordAlgebra, Error, Multivector, Real, Result};
use alloc::vec::Vec;

impl<A: CliffordAlgebra, T: Real> Rotor<A, T> {
    /// The rotor that takes the direction of `a` to the direction of `b`, in the plane of both. Vectors of opposite
    /// directions leave the plane open, and one is chosen.
    ///
    /// # Errors
    /// [`Error::Undefined`] if an operand is not a vector, if one is null, if their squares differ in sign, or if no
    /// rotor connects them (a line's two directions; future and past; spacelike vectors whose plane is such that
    /// only a reflection does). [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn from_vectors(a: &Multivector<A, T>, b: &Multivector<A, T>) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "rotor from vectors", reason };
        A::into_result(a.algebra().checked(b.algebra(), "rotor from vectors", || ()))?;
        if a.grades() != [1] || b.grades() != [1] {
            return Err(undefined("both operands must be vectors other than zero"));
        }
        let (a, b) = (a.normalized()?, b.normalized()?);
        let sign = a.squared_norm();
        if sign * b.squared_norm() < T::zero() {
            return Err(undefined("one vector has a positive square and the other a negative one"));
        }
        // Towards the opposite half first turn a to −a, so that what is left is well conditioned.
        if dot(&a, &b) * sign < T::zero() {
            let across = perpendicular(&a, &b).ok_or_else(|| {
                undefined("no rotation connects the vectors; reflections or their product do")
            })?;
            let half_turn = Self(across.times(&a));
            let rest = Self::between_near(&-a, &b, sign)
                .ok_or_else(|| undefined("no rotation connects the vectors"))?;
            return Ok(Self(rest.0.times(&half_turn.0)));
        }
        Self::between_near(&a, &b, sign).ok_or_else(|| undefined("no rotation connects the vectors"))
    }

    /// The rotor between unit vectors with a² = b² = `sign` and a·b/`sign` ≥ 0: (1 + b a⁻¹) / ‖1 + b a⁻¹‖.
    fn between_near(a: &Multivector<A, T>, b: &Multivector<A, T>, sign: T) -> Option<Self> {
        let rotor = b.times(a).scaled(&sign).plus_scalar(T::one());
        (rotor.squared_norm() > T::zero()).then(|| rotor.normalized().ok().map(Self)).flatten()
    }
}

/// The scalar product of vectors known to share an algebra.
fn dot<A: CliffordAlgebra, T: Real>(a: &Multivector<A, T>, b: &Multivector<A, T>) -> T {
    a.times(b).scalar_part()
}

/// A unit vector perpendicular to the unit vector `a`, with a square of the same sign: the one in the plane of `a` and
/// `b` if they span one clearly, otherwise near a generator.
fn perpendicular<A: CliffordAlgebra, T: Real>(
    a: &Multivector<A, T>,
    b: &Multivector<A, T>,
) -> Option<Multivector<A, T>> {
    let sign = a.squared_norm();
    let reject = |v: &Multivector<A, T>| v.difference(&a.scaled(&(dot(v, a) * sign)));
    // Rejecting twice restores the orthogonality that cancellation costs the first time.
    let unit = |v: &Multivector<A, T>| {
        let once = reject(v);
        let clear = once.sizes()[0] > T::epsilon().sqrt().sqrt() * v.sizes()[0];
        let unit = once.normalized().ok().filter(|_| clear)?;
        reject(&unit).normalized().ok().filter(|unit| unit.squared_norm() * sign > T::zero())
    };
    let n = a.algebra().signature().dimension();
    let mut generators: Vec<usize> = (1..=n).collect();
    let component = |blade: usize| a.coefficients().get(blade).map_or(T::zero(), |c| c.abs());
    generators
        .sort_by(|&i, &j| component(i).partial_cmp(&component(j)).unwrap_or(core::cmp::Ordering::Equal));
    let candidates =
        generators.into_iter().filter_map(|g| Multivector::blade_in(a.algebra(), g, T::one()).ok());
    core::iter::once(b.clone()).chain(candidates).find_map(|v| unit(&v))
}
