//! Rotors: rotations, boosts and motions, kept normalized by construction.

mod between;
mod plane;
mod space;

use crate::{Cl2, Cl3, CliffordAlgebra, Error, Multivector, Pga3, Real, Result, Scalar, TypeLevel};
use core::{
    fmt,
    iter::Product,
    ops::{Mul, MulAssign, Neg},
};
use num_traits::One;

/// A rotor: an even multivector R with reverse(R) R = 1, acting by R x reverse(R).
///
/// ```
/// use gradewise_core::{Cl3, Multivector, Rotor3};
///
/// let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
/// let quarter = Rotor3::from_vectors(&e1, &e2)?;
/// assert!((quarter.apply(&e1) - e2).norm() < 1e-15);
/// assert!((quarter.apply(&e3) - e3).norm() < 1e-15);
///
/// // Rotors compose, by reference or by value; the right one acts first.
/// let r = quarter;
/// let half = &r * &r;
/// assert!((half.apply(&e1) + e1).norm() < 1e-15);
/// assert_eq!(Rotor3::<f64>::default().apply(&e1), e1);
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

    /// Takes a multivector that is a rotor. Odd parts, which are noise, are dropped.
    ///
    /// # Errors
    /// [`Error::Undefined`] unless it is even with reverse(R) R = 1 and, beyond five dimensions, maps vectors to vectors; see
    /// [`Multivector::normalized`]. Odd coefficients may be up to 2¹² ulps (5e-4 in `f32`, 9e-13 in `f64`) of even
    /// ones with as many null generators or fewer, and each coefficient of reverse(R) R − 1 up to 2¹² ulps of the sum of the
    /// magnitudes that it is the sum of. The squared norm is between ½ and 3/2 in any case, which is where rapidities
    /// beyond 34 (13 in `f32`) may end: their norm is lost in rounding.
    pub fn new(rotor: Multivector<A, T>) -> Result<Self> {
        if rotor.is_rotor() {
            Ok(Self(rotor.even_part()))
        } else {
            let reason = "a rotor is even with reverse(R) R = 1 and maps vectors to vectors; normalize first";
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
    /// In projective space `plane` is a line, at any distance from the origin.
    ///
    /// # Errors
    /// [`Error::Undefined`] if `plane` is not a simple bivector, up to 2¹² ulps of what enters plane ∧ plane; a null one, which has
    /// no unit; or if a number is not finite.
    pub fn from_plane_angle(plane: &Multivector<A, T>, angle: T) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "rotor from a plane and an angle", reason };
        let bivector =
            plane.bivector_only().ok_or_else(|| undefined("the plane is a bivector, and nothing else"))?;
        let unit = bivector.normalized()?;
        if !unit.is_simple() {
            return Err(undefined("the bivector is not simple: it spans two planes; exp takes it"));
        }
        Self::exp(&unit.scaled(&(angle * T::from_f64(-0.5))))
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

    /// Of R and −R, which act alike, the one whose scalar part is at least 0: in up to three dimensions the one that turns by at most π.
    /// [`log`](Self::log) and [`powf`](Self::powf) of it take the shorter way round.
    ///
    /// ```
    /// use core::f64::consts::PI;
    /// use gradewise_core::Rotor3;
    ///
    /// let long = Rotor3::from_axis_angle([0.0, 0.0, 1.0], 1.5 * PI)?;
    /// let ([_, _, z], angle) = long.shortest().to_axis_angle();
    /// assert!((z + 1.0).abs() < 1e-15 && (angle - 0.5 * PI).abs() < 1e-15);
    /// assert_eq!(-long, long.shortest());
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    #[must_use]
    pub fn shortest(&self) -> Self {
        if self.0.scalar_part() < T::zero() { -self } else { self.clone() }
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

    /// The motion from `self` at t = 0 to `other` at t = 1 at constant speed, the shorter way round (spherical linear
    /// interpolation): exp(t log(other self⁻¹)) self. `other` and −`other` move everything alike and are taken as one.
    ///
    /// ```
    /// use gradewise_core::Rotor3;
    /// use core::f64::consts::FRAC_PI_2;
    ///
    /// let quarter = Rotor3::from_axis_angle([0.0, 0.0, 1.0], FRAC_PI_2)?;
    /// let middle = Rotor3::identity().slerp(&quarter, 0.5)?;
    /// let ([_, _, z], angle) = middle.to_axis_angle();
    /// assert!((z - 1.0).abs() < 1e-15 && (angle - FRAC_PI_2 / 2.0).abs() < 1e-15);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// Of the two signs the one is taken with which other self⁻¹ turns less; where that has no logarithm (minus a boost), the
    /// other one.
    ///
    /// # Errors
    /// [`Error::Undefined`] if other self⁻¹ has no [logarithm](Multivector::log) with either sign, so that no motion at
    /// constant speed leads from one to the other (which takes an indefinite metric, or several null generators), or if `t` is
    /// not finite; and [`Error::AlgebraMismatch`] (run-time algebras only).
    pub fn slerp(&self, other: &Self, t: T) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "slerp", reason };
        if !t.is_finite() {
            return Err(undefined("the fraction of the way is not finite"));
        }
        let step = A::into_result(other.after(&self.inverse()))?.shortest();
        let log = step.log().or_else(|_| (-&step).log()).map_err(|_| {
            undefined("no motion at constant speed leads from one rotor to the other: other · self⁻¹ has no logarithm with either sign")
        })?;
        A::into_result(Self::exp(&log.scaled(&t))?.after(self))
    }

    /// This rotor with the rounding errors of many products corrected: reverse(R) R = 1 in all parts, to a few ulps of
    /// what enters it. In projective algebras the part with null generators, which holds translations, too (Study's norm of dual
    /// quaternions), at any distance; in more than three dimensions the parts of grade 4.
    ///
    /// # Errors
    /// [`Error::Undefined`] if a coefficient is not finite, or if so much was lost that the squared norm is not clear of
    /// zero: boosts of a rapidity beyond 34 (13 in `f32`).
    pub fn renormalized(&self) -> Result<Self> {
        let reason = "a coefficient is not finite, or the norm is lost in rounding: it is no rotor any more";
        self.0.nearest_rotor().map(Self).ok_or(Error::Undefined { operation: "renormalization", reason })
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

/// The other rotor with the same action.
impl<A: CliffordAlgebra, T: Scalar> Neg for Rotor<A, T> {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl<A: CliffordAlgebra, T: Scalar> Neg for &Rotor<A, T> {
    type Output = Rotor<A, T>;

    #[inline]
    fn neg(self) -> Rotor<A, T> {
        Rotor(-&self.0)
    }
}

/// `second * first`: the rotor that acts as the right operand and then as the left one.
macro_rules! composition {
    ($($left:ty, $right:ty;)*) => {$(
        impl<A: TypeLevel, T: Real> Mul<$right> for $left {
            type Output = Rotor<A, T>;

            #[inline]
            fn mul(self, first: $right) -> Rotor<A, T> {
                Rotor(self.0.times(&first.0))
            }
        }
    )*};
}

composition! {
    Rotor<A, T>, Rotor<A, T>;
    Rotor<A, T>, &Rotor<A, T>;
    &Rotor<A, T>, Rotor<A, T>;
    &Rotor<A, T>, &Rotor<A, T>;
}

impl<A: TypeLevel, T: Real> MulAssign for Rotor<A, T> {
    #[inline]
    fn mul_assign(&mut self, first: Self) {
        *self = &*self * first;
    }
}

/// The rotor that does nothing.
impl<A: TypeLevel, T: Real> Default for Rotor<A, T> {
    fn default() -> Self {
        Self::identity()
    }
}

impl<A: TypeLevel, T: Real> One for Rotor<A, T> {
    fn one() -> Self {
        Self::identity()
    }
}

/// Composes all rotors; the last one acts first.
impl<A: TypeLevel, T: Real> Product for Rotor<A, T> {
    fn product<I: Iterator<Item = Self>>(rotors: I) -> Self {
        rotors.fold(Self::identity(), Mul::mul)
    }
}

impl<A: CliffordAlgebra, T: Scalar> From<Rotor<A, T>> for Multivector<A, T> {
    fn from(rotor: Rotor<A, T>) -> Self {
        rotor.0
    }
}
