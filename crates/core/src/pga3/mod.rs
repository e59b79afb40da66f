//! Projective geometric algebra of space, Cl(3,0,1): planes are vectors, lines bivectors, points trivectors, and rigid
//! motions are rotors ([`Motor3`](crate::Motor3)).
//!
//! The null generator comes last in this crate's order, so the e0 of the literature is e4 here (Gunn, "Geometric
//! algebras for Euclidean geometry", 2017). Intersections are outer products, `^` or
//! [`meet`](Multivector::meet); joins are regressive ones, `&` or [`join`](Multivector::join).
//!
//! ```
//! use gradewise_core::pga3::{self, direction, line, plane, point};
//!
//! // The z axis meets the plane z = 2.
//! let axis = line([0.0, 0.0, 0.0], [0.0, 0.0, 1.0]);
//! assert_eq!(axis, point([0.0, 0.0, 0.0]) & direction([0.0, 0.0, 1.0]));
//! let hit = axis ^ plane(0.0, 0.0, 1.0, -2.0);
//! assert_eq!(pga3::coordinates(&hit)?, [0.0, 0.0, 2.0]);
//! // Three points span a plane.
//! let floor = point([0.0, 0.0, 1.0]) & point([1.0, 0.0, 1.0]) & point([0.0, 1.0, 1.0]);
//! assert_eq!(floor, plane(0.0, 0.0, 1.0, -1.0));
//! # Ok::<(), gradewise_core::Error>(())
//! ```

mod motor;

use crate::{Error, Multivector, Pga3, Real, Result, Scalar};
use num_traits::Float;

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

/// The point at infinity in the direction (x, y, z), where all lines of that direction meet. Translations leave it unchanged.
pub fn direction<T: Scalar>([x, y, z]: [T; 3]) -> Multivector<Pga3, T> {
    -Multivector::vector([x, y, z, T::zero()]).dual()
}

/// The line through the point `through` in the direction `along`: the join of [`point`] and [`direction`]. The line
/// through two points is `point(p) & point(q)`.
pub fn line<T: Scalar>(through: [T; 3], along: [T; 3]) -> Multivector<Pga3, T> {
    point(through).raw_regressive(&direction(along))
}

/// The direction of a line, and its moment p × d about the origin with p any of its points: Plücker's coordinates. A line
/// at infinity has the direction 0.
pub fn plucker<T: Scalar>(line: &Multivector<Pga3, T>) -> ([T; 3], [T; 3]) {
    ([-line.e23(), line.e13(), -line.e12()], [line.e14(), line.e24(), line.e34()])
}

/// The distance of two points of any weight.
///
/// # Errors
/// [`Error::Undefined`] if one is at infinity.
pub fn distance<T: Real>(a: &Multivector<Pga3, T>, b: &Multivector<Pga3, T>) -> Result<T> {
    let ([ax, ay, az], [bx, by, bz]) = (coordinates(a)?, coordinates(b)?);
    Ok(Float::hypot(Float::hypot(ax - bx, ay - by), az - bz))
}

/// The distance of a point from a plane, each of any weight: positive on the side that the plane's normal points to.
///
/// # Errors
/// [`Error::Undefined`] if either is at infinity.
pub fn height<T: Real>(point: &Multivector<Pga3, T>, plane: &Multivector<Pga3, T>) -> Result<T> {
    let [x, y, z] = coordinates(point)?;
    let (a, b, c, d) = (plane.e1(), plane.e2(), plane.e3(), plane.e4());
    let length = Float::hypot(Float::hypot(a, b), c);
    if length == T::zero() {
        let reason = "the plane is the one at infinity: it has no normal";
        return Err(Error::Undefined { operation: "height over a plane", reason });
    }
    Ok((a * x + b * y + c * z + d) / length)
}
