//! Rotations of the plane as angles, complex numbers and matrices.

use super::{Rotor, Rotor2};
use crate::{Cl2, Error, Multivector, Real, Result};

impl<T: Real> Rotor<Cl2, T> {
    /// The rotation by `angle` radians, from e1 towards e2.
    pub fn from_angle(angle: T) -> Rotor2<T> {
        let half = angle * T::from_f64(0.5);
        Self::from_normalized(Multivector::new([half.cos(), T::zero(), T::zero(), -half.sin()]))
    }

    /// The angle in radians, between −π and π.
    pub fn angle(&self) -> T {
        let [re, im] = self.to_complex();
        im.atan2(re)
    }

    /// The rotation by the argument of the complex number re + i im, of any modulus.
    ///
    /// # Errors
    /// [`Error::Undefined`] if the number is zero or not finite.
    pub fn from_complex([re, im]: [T; 2]) -> Result<Rotor2<T>> {
        let size = re.hypot(im);
        if size == T::zero() || !size.is_finite() {
            let reason = "the complex number is zero or not finite";
            return Err(Error::Undefined { operation: "rotor from a complex number", reason });
        }
        Ok(Self::from_angle(im.atan2(re)))
    }

    /// The unit complex number (re, im) of this rotation: the square of the rotor, which has half the angle.
    pub fn to_complex(&self) -> [T; 2] {
        let (cosine, sine) = (self.0.scalar_part(), -self.0.e12());
        [cosine * cosine - sine * sine, (cosine + cosine) * sine]
    }

    /// The matrix, by rows, that moves columns (x, y) as this rotor moves vectors.
    pub fn to_matrix(&self) -> [[T; 2]; 2] {
        let [re, im] = self.to_complex();
        [[re, -im], [im, re]]
    }

    /// The rotation of a matrix, by rows.
    ///
    /// # Errors
    /// [`Error::Undefined`] unless the matrix is a rotation, up to rounding.
    pub fn from_matrix(matrix: &[[T; 2]; 2]) -> Result<Rotor2<T>> {
        let [[a, b], [c, d]] = *matrix;
        let near = |x: T| x.abs() <= T::epsilon().sqrt();
        if near(a - d) && near(b + c) && near(a * a + c * c - T::one()) {
            Self::from_complex([a + d, c - b])
        } else {
            let reason = "the matrix is no rotation: its columns are not orthonormal, or it reflects";
            Err(Error::Undefined { operation: "rotor from a matrix", reason })
        }
    }
}
