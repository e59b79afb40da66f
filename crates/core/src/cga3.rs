//! Conformal geometric algebra of space, Cl(4,1,0): points are null vectors, and spheres, planes, circles and lines are
//! the outer products of points on them. Motions and changes of scale are rotors.
//!
//! The null basis is n₀ = ½ (e5 − e4), the origin, and n∞ = e4 + e5, with n₀ · n∞ = −1; the point x is
//! n₀ + x + ½ x² n∞, and the square of the distance of two points is −2 a · b (Dorst, Fontijne and Mann, "Geometric
//! Algebra for Computer Science", 2007, chapters 13 to 15). An object contains the point p if p ∧ object = 0:
//!
//! | | |
//! |---|---|
//! | `a ^ b` | pair of points |
//! | `a ^ b ^ c`, [`circle`] | circle |
//! | `a ^ b ^ infinity()`, [`line()`] | line |
//! | `a ^ b ^ c ^ d`, [`sphere`] | sphere |
//! | `a ^ b ^ c ^ infinity()`, [`plane`] | plane |
//!
//! Objects meet by `&` ([`meet`](Multivector::meet)) and span by `^` ([`join`](Multivector::join)).
//!
//! ```
//! use gradewise_core::cga3::{self, point, sphere};
//!
//! let [a, b, c, d] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]].map(point);
//! let ball = a ^ b ^ c ^ d;
//! let near = |x: f64, y: f64| (x - y).abs() < 1e-15;
//! assert!(near(cga3::radius(&ball)?, 1.0));
//! assert!((point([0.0, -1.0, 0.0]) ^ ball).is_zero());
//! // It meets the sphere about (1, 0, 0) in a circle about (½, 0, 0) with the radius √¾.
//! let circle = ball & sphere([1.0, 0.0, 0.0], 1.0);
//! let [x, y, z] = cga3::center(&circle)?;
//! assert!(near(x, 0.5) && near(y, 0.0) && near(z, 0.0));
//! assert!(near(cga3::radius(&circle)?, 0.75f64.sqrt()));
//! # Ok::<(), gradewise_core::Error>(())
//! ```

use crate::{Blade, Cga3, Error, Multivector, Real, Result, Rotor, Rotor3};

/// A motion, a change of scale, or both: a rotor of conformal space.
pub type Conformal3<T = f64> = Rotor<Cga3, T>;

/// The origin, n₀ = ½ (e5 − e4).
pub fn origin<T: Real>() -> Multivector<Cga3, T> {
    point([T::zero(); 3])
}

/// The point at infinity, n∞ = e4 + e5, which lies on every plane and line.
pub fn infinity<T: Real>() -> Multivector<Cga3, T> {
    let (o, one) = (T::zero(), T::one());
    Multivector::vector([o, o, o, one, one])
}

/// The point (x, y, z): n₀ + x + ½ x² n∞.
pub fn point<T: Real>([x, y, z]: [T; 3]) -> Multivector<Cga3, T> {
    let half = T::from_f64(0.5);
    let square = x * x + y * y + z * z;
    Multivector::vector([x, y, z, (square - T::one()) * half, (square + T::one()) * half])
}

/// The coordinates of a point of any weight. For a vector that is not a point: the centre of its sphere.
///
/// # Errors
/// [`Error::Undefined`] if the weight, −p · n∞, is zero up to 16 ulps of what enters it: the point is at infinity. The weight is the
/// difference of two numbers of the order of half the squared distance d² from the origin, so that coordinates are right to d² ulps, and
/// points beyond 700 units in `f32` and 1.6e7 in `f64` cannot be told from infinity. [`pga3`](crate::pga3) reaches further.
pub fn coordinates<T: Real>(point: &Multivector<Cga3, T>) -> Result<[T; 3]> {
    let weight = point.e5() - point.e4();
    if weight.abs() <= noise::<T>() * (point.e4().abs() + point.e5().abs()) || !weight.is_finite() {
        let reason = "the point is at infinity: its weight, −p · n∞, is zero";
        return Err(Error::Undefined { operation: "coordinates of a point", reason });
    }
    Ok([point.e1() / weight, point.e2() / weight, point.e3() / weight])
}

/// What is taken for zero beside 1 where two numbers of that size are subtracted.
fn noise<T: Real>() -> T {
    T::epsilon() * T::from_f64(16.0)
}

/// The square of the distance of two points of any weight.
///
/// # Errors
/// [`Error::Undefined`] if one is at infinity.
pub fn squared_distance<T: Real>(a: &Multivector<Cga3, T>, b: &Multivector<Cga3, T>) -> Result<T> {
    let difference = Multivector::<crate::Cl3, T>::vector(coordinates(a)?)
        .difference(&Multivector::vector(coordinates(b)?));
    Ok(difference.squared_norm())
}

/// The sphere about `center`.
pub fn sphere<T: Real>(center: [T; 3], radius: T) -> Multivector<Cga3, T> {
    let half_square = radius * radius * T::from_f64(0.5);
    through(&point(center).difference(&infinity().scaled(&half_square)))
}

/// The plane {x : normal · x = `distance` ‖normal‖}, with a normal of any length.
///
/// # Errors
/// [`Error::Undefined`] if the normal is zero or not finite.
pub fn plane<T: Real>(normal: [T; 3], distance: T) -> Result<Multivector<Cga3, T>> {
    Ok(through(&unit(normal, "plane")?.sum(&infinity().scaled(&distance))))
}

/// The circle about `center` in the plane with `normal`, of any length.
///
/// # Errors
/// [`Error::Undefined`] if the normal is zero or not finite.
pub fn circle<T: Real>(center: [T; 3], normal: [T; 3], radius: T) -> Result<Multivector<Cga3, T>> {
    let normal = unit(normal, "circle")?;
    let [x, y, z] = center;
    let distance = normal.e1() * x + normal.e2() * y + normal.e3() * z;
    let plane = through(&normal.sum(&infinity().scaled(&distance)));
    Ok(sphere(center, radius).raw_regressive(&plane))
}

/// The line through the point `through` in the direction `along`.
pub fn line<T: Real>(through: [T; 3], along: [T; 3]) -> Multivector<Cga3, T> {
    point(through) ^ direction(along) ^ infinity()
}

/// The vector `x e1 + y e2 + z e3`.
fn direction<T: Real>([x, y, z]: [T; 3]) -> Multivector<Cga3, T> {
    Multivector::vector([x, y, z, T::zero(), T::zero()])
}

fn unit<T: Real>(normal: [T; 3], operation: &'static str) -> Result<Multivector<Cga3, T>> {
    let reason = "the normal is zero or not finite";
    direction(normal).normalized().map_err(|_| Error::Undefined { operation, reason })
}

/// The object of the points p with p · `vector` = 0: the Hodge star, since p ∧ ⋆s = (p · s) I.
fn through<T: Real>(vector: &Multivector<Cga3, T>) -> Multivector<Cga3, T> {
    vector.hodge_star()
}

/// The centre of a sphere, a circle or a pair of points: the reflection of infinity in it.
///
/// # Errors
/// [`Error::Undefined`] for planes and lines, which have none.
pub fn center<T: Real>(round: &Multivector<Cga3, T>) -> Result<[T; 3]> {
    let reflected = round.times(&infinity()).times(round);
    coordinates(&reflected.grade(1)).map_err(|_| Error::Undefined {
        operation: "centre",
        reason: "planes, lines and points at infinity have no centre",
    })
}

/// The radius of a sphere, a circle or a pair of points. Negative for an imaginary radius r, such as that of the circle in which two
/// disjoint spheres meet: −|r|.
///
/// # Errors
/// [`Error::Undefined`] for planes and lines, which have none.
pub fn radius<T: Real>(round: &Multivector<Cga3, T>) -> Result<T> {
    let flat = infinity().raw_product::<crate::multivector::product::Outer>(round);
    let (square, weight) = (round.squared_norm(), flat.squared_norm());
    let flattened = flat.size() <= noise::<T>() * round.size();
    if flattened || weight.abs() <= noise::<T>() * flat.squared_size() || !weight.is_finite() {
        let reason = "planes and lines have no radius";
        return Err(Error::Undefined { operation: "radius", reason });
    }
    let square = square / weight;
    Ok(if square < T::zero() { -(-square).sqrt() } else { square.sqrt() })
}

/// The translation by (x, y, z): 1 − ½ (x e1 + y e2 + z e3) n∞.
pub fn translator<T: Real>(by: [T; 3]) -> Conformal3<T> {
    let half = direction(by).scaled(&T::from_f64(-0.5));
    Rotor::from_normalized(half.times(&infinity()).plus_scalar(T::one()))
}

/// The change of scale about the origin by `factor`.
///
/// # Errors
/// [`Error::Undefined`] unless the factor is positive and finite: a negative one would reflect as well.
pub fn dilator<T: Real>(factor: T) -> Result<Conformal3<T>> {
    if factor <= T::zero() || !factor.is_finite() {
        let reason = "the factor of a change of scale is positive and finite";
        return Err(Error::Undefined { operation: "dilator", reason });
    }
    // exp(½ ln(factor) n₀ ∧ n∞), and n₀ ∧ n∞ = −e45 has the square 1.
    let half = factor.ln() * T::from_f64(0.5);
    let mut rotor = Multivector::scalar(half.cosh());
    rotor[Blade::E45] = -half.sinh();
    Ok(Rotor::from_normalized(rotor))
}

/// The rotation about the origin.
impl<T: Real> From<&Rotor3<T>> for Conformal3<T> {
    fn from(rotor: &Rotor3<T>) -> Self {
        let r = rotor.as_multivector();
        let mut conformal = Multivector::scalar(r.scalar_part());
        for blade in [Blade::E12, Blade::E13, Blade::E23] {
            conformal[blade] = r[blade];
        }
        Rotor::from_normalized(conformal)
    }
}

/// The rotation about the origin.
impl<T: Real> From<Rotor3<T>> for Conformal3<T> {
    fn from(rotor: Rotor3<T>) -> Self {
        Self::from(&rotor)
    }
}
