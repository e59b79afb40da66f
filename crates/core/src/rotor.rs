//! Rotors: rotations, boosts and motions, kept normalized by construction.

use crate::{Cl2, Cl3, CliffordAlgebra, Error, Multivector, Pga3, Real, Result, Scalar, TypeLevel};
use std::{fmt, ops::Mul};

/// A rotor: an even multivector R with reverse(R) R = 1, acting by R x reverse(R).
///
/// ```
/// use gradewise_core::{Cl3, Multivector, Rotor3};
///
/// let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
/// let quarter = Rotor3::from_vectors(&e1, &e2)?;
/// assert!((quarter.apply(&e1) - e2).norm() < 1e-15);
/// assert!((quarter.apply(&e3) - e3).norm() < 1e-15);
/// # Ok::<(), gradewise_core::Error>(())
/// ```
pub struct Rotor<A: CliffordAlgebra, T: Scalar>(Multivector<A, T>);

/// Rotations of the plane: unit complex numbers.
pub type Rotor2<T = f64> = Rotor<Cl2, T>;
/// Rotations of space: unit quaternions.
pub type Rotor3<T = f64> = Rotor<Cl3, T>;
/// Rigid motions of space: unit dual quaternions. [`pga3`](crate::pga3) makes points, planes and translations.
pub type Motor3<T = f64> = Rotor<Pga3, T>;

impl<A: CliffordAlgebra, T: Real> Rotor<A, T> {
    /// The rotor that does nothing, 1.
    pub fn identity_in(algebra: &A) -> Self {
        Self(Multivector::scalar_in(algebra, T::one()))
    }

    /// Takes a multivector that is a rotor.
    ///
    /// # Errors
    /// [`Error::Undefined`] unless it is even with reverse(R) R = 1 up to rounding; see
    /// [`Multivector::normalized`].
    pub fn new(rotor: Multivector<A, T>) -> Result<Self> {
        if rotor.is_rotor() {
            Ok(Self(rotor.even_part()))
        } else {
            let reason = "a rotor is even with reverse(R) R = 1; normalize first";
            Err(Error::Undefined { operation: "rotor", reason })
        }
    }

    /// Takes a multivector that is a rotor by construction.
    pub(crate) fn from_normalized(rotor: Multivector<A, T>) -> Self {
        Self(rotor)
    }

    /// exp(B) of a bivector.
    ///
    /// # Errors
    /// As [`Multivector::exp`].
    pub fn exp(bivector: &Multivector<A, T>) -> Result<Self> {
        bivector.exp().map(Self)
    }

    /// The rotation by `angle` radians in `plane`, a simple bivector of any size: for a ∧ b from a towards b. In a
    /// plane with positive square it is the boost by the rapidity `angle`.
    ///
    /// # Errors
    /// [`Error::Undefined`] if `plane` is not a simple bivector, or a null one, which has no unit.
    pub fn from_plane_angle(plane: &Multivector<A, T>, angle: T) -> Result<Self> {
        Self::exp(&plane.normalized()?.scaled(&(angle * T::from_f64(-0.5))))
    }

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

    /// The action on x, R x reverse(R): an automorphism that preserves grades and norms. Noise in grades that x does
    /// not have is removed.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn apply(&self, x: &Multivector<A, T>) -> A::Checked<Multivector<A, T>> {
        self.0
            .algebra()
            .checked(x.algebra(), "rotor", || self.0.times(x).times(&self.0.reverse()).in_grades_of(x))
    }

    /// The rotor that acts as `first` and then as `self`. `*` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn after(&self, first: &Self) -> A::Checked<Self> {
        self.0.algebra().checked(first.0.algebra(), "rotor composition", || Self(self.0.times(&first.0)))
    }

    /// The rotor that undoes this one: its reverse.
    pub fn inverse(&self) -> Self {
        Self(self.0.reverse())
    }

    /// The bivector B with exp(B) = R.
    ///
    /// # Errors
    /// As [`Multivector::log`].
    pub fn log(&self) -> Result<Multivector<A, T>> {
        self.0.log()
    }

    /// The fraction (or multiple) `t` of the motion, exp(t log R): at constant speed from the identity at 0 to R at 1.
    ///
    /// # Errors
    /// As [`Multivector::log`].
    pub fn powf(&self, t: T) -> Result<Self> {
        Self::exp(&self.log()?.scaled(&t))
    }

    /// This rotor with the rounding errors of many products taken out of its norm.
    ///
    /// # Errors
    /// [`Error::Undefined`] if coefficients are not finite.
    pub fn renormalized(&self) -> Result<Self> {
        self.0.normalized().map(Self)
    }

    /// The rotor as a multivector.
    pub fn as_multivector(&self) -> &Multivector<A, T> {
        &self.0
    }

    /// The rotor as a multivector.
    pub fn into_multivector(self) -> Multivector<A, T> {
        self.0
    }
}

impl<A: TypeLevel, T: Real> Rotor<A, T> {
    /// The rotor that does nothing, 1.
    pub fn identity() -> Self {
        Self::identity_in(&A::default())
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
        let clear = once.scale() > T::epsilon().sqrt() * v.scale();
        let unit = once.normalized().ok().filter(|_| clear)?;
        reject(&unit).normalized().ok().filter(|unit| unit.squared_norm() * sign > T::zero())
    };
    let n = a.algebra().signature().dimension();
    let mut generators: Vec<usize> = (1..=n).collect();
    let component = |blade: usize| a.coefficients().get(blade).map_or(T::zero(), |c| c.abs());
    generators.sort_by(|&i, &j| component(i).partial_cmp(&component(j)).unwrap_or(std::cmp::Ordering::Equal));
    let candidates =
        generators.into_iter().filter_map(|g| Multivector::blade_in(a.algebra(), g, T::one()).ok());
    std::iter::once(b.clone()).chain(candidates).find_map(|v| unit(&v))
}

impl<A: CliffordAlgebra, T: Scalar> Clone for Rotor<A, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: CliffordAlgebra + Copy, T: Scalar> Copy for Rotor<A, T> where A::Coefficients<T>: Copy {}

impl<A: CliffordAlgebra, T: Scalar> PartialEq for Rotor<A, T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<A: CliffordAlgebra, T: Scalar> fmt::Debug for Rotor<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rotor").field(&self.0).finish()
    }
}

impl<A: CliffordAlgebra, T: Scalar> fmt::Display for Rotor<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<A: TypeLevel, T: Real> Mul for Rotor<A, T> {
    type Output = Self;

    /// The rotor that acts as the right operand and then as the left one.
    fn mul(self, first: Self) -> Self {
        Self(self.0.times(&first.0))
    }
}
