//! Projective geometric algebra of space, Cl(3,0,1): planes are vectors, lines bivectors, points trivectors, and rigid
//! motions are rotors ([`Motor3`]).
//!
//! The null generator comes last in this crate's order, so the e0 of the literature is e4 here (Gunn, "Geometric
//! algebras for Euclidean geometry", 2017). Intersections are outer products, joins regressive ones.

use crate::{Error, Motor3, Multivector, Pga3, Real, Result, Rotor, Scalar};

/// The plane {(x, y, z) : a x + b y + c z + d = 0}: a e1 + b e2 + c e3 + d e4.
pub fn plane<T: Scalar>(a: T, b: T, c: T, d: T) -> Multivector<Pga3, T> {
    Multivector::vector([a, b, c, d])
}

/// The point (x, y, z): where the planes through it with normals e1, e2 and e3 meet,
/// e123 − z e124 + y e134 − x e234.
pub fn point<T: Scalar>([x, y, z]: [T; 3]) -> Multivector<Pga3, T> {
    -Multivector::vector([x, y, z, T::one()]).dual()
}

/// The coordinates of a point of any weight.
///
/// # Errors
/// [`Error::Undefined`] if the weight (the coefficient of e123) is zero: the point is at infinity; and for integers if
/// the coordinates have fractions.
pub fn coordinates<T: Scalar>(point: &Multivector<Pga3, T>) -> Result<[T; 3]> {
    let undefined = Error::Undefined {
        operation: "coordinates of a point",
        reason: "the point lies at infinity (its weight on e123 is zero), or its coordinates have fractions",
    };
    let vector = (-point).undual();
    match vector.vector_part() {
        [x, y, z, weight] => {
            let divide = |c: &T| c.quotient(weight).ok_or_else(|| undefined.clone());
            Ok([divide(x)?, divide(y)?, divide(z)?])
        }
        _ => Err(undefined),
    }
}

impl<T: Real> Rotor<Pga3, T> {
    /// The translation by (x, y, z): 1 + ½ (x e14 + y e24 + z e34).
    pub fn translation([x, y, z]: [T; 3]) -> Motor3<T> {
        let half = T::from_f64(0.5);
        let [e1, e2, e3, e4] = Multivector::generators();
        let direction = e1.scaled(&(x * half)).sum(&e2.scaled(&(y * half))).sum(&e3.scaled(&(z * half)));
        Self::from_normalized(direction.times(&e4).plus_scalar(T::one()))
    }
}
