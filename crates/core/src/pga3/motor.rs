//! Rigid motions: from rotations and translations, and back.

use super::{coordinates, point};
use crate::{Error, Motor3, Multivector, Pga3, Real, Result, Rotor, Rotor3};

impl<T: Real> Rotor<Pga3, T> {
    /// The translation by (x, y, z): 1 + ½ (x e14 + y e24 + z e34).
    pub fn translation([x, y, z]: [T; 3]) -> Motor3<T> {
        let half = T::from_f64(0.5);
        let [e1, e2, e3, e4] = Multivector::generators();
        let direction = e1.scaled(&(x * half)).sum(&e2.scaled(&(y * half))).sum(&e3.scaled(&(z * half)));
        Self::from_normalized(direction.times(&e4).plus_scalar(T::one()))
    }

    /// The motion that rotates about the origin and then translates.
    ///
    /// ```
    /// use gradewise_core::{Motor3, Rotor3, pga3};
    ///
    /// let quarter = Rotor3::from_axis_angle([0.0, 0.0, 1.0], core::f64::consts::FRAC_PI_2)?;
    /// let motion = Motor3::from_rotation_translation(&quarter, [0.0, 0.0, 3.0]);
    /// let [x, y, z] = pga3::coordinates(&motion.apply(&pga3::point([1.0, 0.0, 0.0])))?;
    /// assert!(x.abs() < 1e-15 && (y - 1.0).abs() < 1e-15 && z == 3.0);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    pub fn from_rotation_translation(rotation: &Rotor3<T>, translation: [T; 3]) -> Motor3<T> {
        Self::translation(translation) * Self::from(rotation)
    }

    /// The rotation part: the motion without its translation.
    pub fn rotation(&self) -> Rotor3<T> {
        let m = self.as_multivector();
        let o = T::zero();
        Rotor3::from_normalized(Multivector::new([m.scalar_part(), o, o, o, m.e12(), m.e13(), m.e23(), o]))
    }

    /// The translation part, which acts after the [`rotation`](Self::rotation): the image of the origin.
    ///
    /// # Errors
    /// [`Error::Undefined`] if the motor's norm was lost to overflow.
    pub fn displacement(&self) -> Result<[T; 3]> {
        coordinates(&self.apply(&point([T::zero(); 3])))
    }

    /// The matrix, by rows, that moves columns (x, y, z, 1) as this motor moves points.
    ///
    /// # Errors
    /// As [`displacement`](Self::displacement).
    pub fn to_matrix(&self) -> Result<[[T; 4]; 4]> {
        let ([a, b, c], [x, y, z]) = (self.rotation().to_matrix(), self.displacement()?);
        let row = |[p, q, r]: [T; 3], last| [p, q, r, last];
        Ok([row(a, x), row(b, y), row(c, z), row([T::zero(); 3], T::one())])
    }

    /// The motion of a matrix, by rows, that moves columns (x, y, z, 1).
    ///
    /// # Errors
    /// [`Error::Undefined`] unless the last row is 0, 0, 0, 1 and the rest a rotation beside a translation.
    pub fn from_matrix(matrix: &[[T; 4]; 4]) -> Result<Motor3<T>> {
        let (o, one) = (T::zero(), T::one());
        if matrix[3] != [o, o, o, one] {
            let reason = "the last row of the matrix of a rigid motion is 0, 0, 0, 1";
            return Err(Error::Undefined { operation: "motor from a matrix", reason });
        }
        let [[a, b, c, x], [d, e, f, y], [g, h, i, z], _] = *matrix;
        let rotation = Rotor3::from_matrix(&[[a, b, c], [d, e, f], [g, h, i]])?;
        Ok(Self::from_rotation_translation(&rotation, [x, y, z]))
    }
}

/// The rotation about the origin.
impl<T: Real> From<&Rotor3<T>> for Motor3<T> {
    fn from(rotor: &Rotor3<T>) -> Self {
        let (r, mut motor) =
            (rotor.as_multivector(), Multivector::<Pga3, T>::scalar(rotor.as_multivector().scalar_part()));
        for blade in [crate::Blade::E12, crate::Blade::E13, crate::Blade::E23] {
            motor[blade] = r[blade];
        }
        Self::from_normalized(motor)
    }
}

/// The rotation about the origin.
///
/// ```
/// use gradewise_core::{Motor3, Rotor3, pga3};
///
/// let r = Rotor3::from_axis_angle([1.0, 0.0, 0.0], core::f64::consts::PI)?;
/// let motor: Motor3 = r.into();
/// let [_, y, _] = pga3::coordinates(&motor.apply(&pga3::point([0.0, 1.0, 0.0])))?;
/// assert_eq!(y, -1.0);
/// # Ok::<(), gradewise_core::Error>(())
/// ```
impl<T: Real> From<Rotor3<T>> for Motor3<T> {
    fn from(rotor: Rotor3<T>) -> Self {
        Self::from(&rotor)
    }
}
