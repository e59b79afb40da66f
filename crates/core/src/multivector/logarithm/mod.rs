//! The logarithm of rotors.
//!
//! [`closed`] has the closed forms of up to five dimensions. Near full and half turns they divide small numbers by small ones, and
//! beyond five dimensions there are none; [`candidates`] finds logarithms there from the action on vectors. Whatever a
//! candidate comes from, [`newton`] refines it, and it is returned only if its exponential is R.

mod candidates;
mod closed;
mod matrix;
mod newton;

use super::Multivector;
use crate::{CliffordAlgebra, Error, Real, Result};
use newton::Refined;

const NO_LOGARITHM: &str = "no bivector has this rotor as its exponential (minus a boost or minus a translation is none, in one plane or in \
     one of two); take the logarithm of −R, which moves everything as R does";
/// A bivector is next to a logarithm, and its digits do not suffice for one.
const ROUNDED: &str = "its planes are nearly null, so that the digits of a bivector do not suffice for its logarithm: the exponential of the \
     nearest one is off by more than rounding";
/// Beyond five dimensions there is no closed form, and the search may end without a logarithm that exists.
const NOT_FOUND: &str = "no logarithm was found: beyond five dimensions the search is not exhaustive, and minus a boost or minus a \
     translation has none; try −R, which moves everything as R does";

impl<A: CliffordAlgebra, T: Real> Multivector<A, T> {
    /// A logarithm of a rotor R (even, reverse(R) R = 1): a bivector B with exp(B) = R, of any signature.
    ///
    /// In one plane it is the B whose rotation angle, 2√−B² for a rotation, is at most 2π; in two planes the one for which
    /// the angles of B, θ₁ and θ₂ = √−Bᵢ², satisfy θ₁ + θ₂ ≤ π. Where the plane of a full turn is not determined, as for
    /// R = −1, some plane is taken; for minus a translation one that the translation leaves alone, if there is one.
    ///
    /// ```
    /// use gradewise_core::{Multivector, Pga3, Sta};
    ///
    /// // A boost along z with a rotation about z: one bivector of space-time.
    /// let [t, x, y, z] = Multivector::<Sta, f64>::generators();
    /// let motion = (z ^ t) * 0.5 + (x ^ y) * 1.25;
    /// assert!((motion.exp()?.log()? - motion).norm() < 1e-15);
    /// // A full turn with a translation along the axis.
    /// let screw: Multivector<Pga3, f64> = "-1 - 0.5e34".parse()?;
    /// assert!((screw.log()?.exp()? - screw).coefficients().iter().all(|c| c.abs() < 1e-15));
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// R is taken for the [rotor](crate::Rotor::renormalized) next to it. Each coefficient of exp(B) is then that of R up to
    /// 2¹² ulps (9e-13 in `f64`, 5e-4 in `f32`), and mostly to a few, of the largest coefficient of R with as many null
    /// generators or fewer and at least of 1 (of its square, where planes are nearly null); what is further away is not returned. In
    /// projective algebras this holds at any distance from the origin. There, an angle of δ short of a full turn together with a translation across puts the axis 1 / δ away, and exp(B) has the
    /// translation to 16 ε / δ or δ, whichever is less: 1e-7 at the worst, in `f64`. It is the logarithm of a full turn about an axis at hand
    /// where δ is less.
    ///
    /// # Errors
    /// [`Error::Undefined`] if R is not a rotor (see [`Rotor::new`](crate::Rotor::new)); and if no bivector has R as its
    /// exponential: if R is minus a boost or minus a translation, or is so in one of several planes, without a plane
    /// that R leaves alone and in which a full turn takes the sign away. Take −R, which moves everything as R does. Where the planes of R are
    /// so nearly null that no bivector of this precision has R as its exponential, the error says so. Beyond five dimensions
    /// logarithms are searched for, and a rotor close to one without a logarithm may be refused.
    pub fn log(&self) -> Result<Self> {
        let undefined = |reason| Error::Undefined { operation: "log", reason };
        let rotor = self.is_rotor().then(|| self.nearest_rotor()).flatten();
        let rotor = rotor.ok_or_else(|| {
            undefined("only rotors (even, reverse(R) R = 1) have a logarithm; normalize first")
        })?;
        let length = rotor.unit_of_length();
        let best = rotor.with_null_generators_scaled(&length.recip()).log_nearby();
        match best {
            (Some(best), true) => Ok(best.into_log().with_null_generators_scaled(&length)),
            (Some(best), false) if best.is_rounded() => Err(undefined(ROUNDED)),
            _ if self.algebra.signature().dimension() > 5 => Err(undefined(NOT_FOUND)),
            _ => Err(undefined(NO_LOGARITHM)),
        }
    }

    /// What comes closest to a logarithm of a rotor whose coefficients with null generators are of the order of one, and whether it is one.
    fn log_nearby(&self) -> (Option<Refined<A, T>>, bool) {
        // The closed form, which is exact where nothing is close to a full turn.
        let mut best: Option<Refined<A, T>> = None;
        for refined in self.closed_logs().flat_map(|log| Refined::all_of(log, self)) {
            if refined.is_exact() && refined.is_near() {
                return (Some(refined), true);
            }
            if best.as_ref().is_none_or(|best| refined.is_better_than(best)) {
                best = Some(refined);
            }
        }
        let mut found = best.as_ref().is_some_and(Refined::is_good);
        for attempt in 0..candidates::ATTEMPTS {
            let candidates = self.log_candidates(attempt).into_iter();
            for refined in candidates.flat_map(|log| Refined::all_of(log, self)) {
                found |= refined.is_good();
                if best.as_ref().is_none_or(|best| refined.is_better_than(best)) {
                    best = Some(refined);
                }
            }
            if found {
                break;
            }
        }
        let found = found || best.as_ref().is_some_and(Refined::is_fair);
        (best, found)
    }
}
