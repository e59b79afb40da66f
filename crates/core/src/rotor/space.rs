//! Rotations of space as quaternions, matrices, and axes with angles.
//!
//! The quaternion w + xi + yj + zk is the rotor w − x e23 + y e13 − z e12: i, j and k are the half turns about e1, e2 and
//! e3, and Hamilton's product is the geometric product.

use super::{Rotor, Rotor3};
use crate::{Cl3, Error, Multivector, Real, Result};

impl<T: Real> Rotor<Cl3, T> {
    /// The rotation of a quaternion (w, x, y, z) of any size.
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector, Rotor3};
    ///
    /// // i turns by half about the first axis.
    /// let half_turn = Rotor3::from_quaternion([0.0, 1.0, 0.0, 0.0])?;
    /// let [_, e2, _] = Multivector::<Cl3, f64>::generators();
    /// assert_eq!(half_turn.apply(&e2), -e2);
    /// assert_eq!(half_turn.to_quaternion(), [0.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Undefined`] if the quaternion is zero or not finite.
    pub fn from_quaternion([w, x, y, z]: [T; 4]) -> Result<Rotor3<T>> {
        let o = T::zero();
        let reason = "the quaternion is zero or not finite";
        let error = |_| Error::Undefined { operation: "rotor from a quaternion", reason };
        Multivector::new([w, o, o, o, -z, y, -x, o]).normalized().map(Self).map_err(error)
    }

    /// The unit quaternion (w, x, y, z).
    pub fn to_quaternion(&self) -> [T; 4] {
        [self.0.scalar_part(), -self.0.e23(), self.0.e13(), -self.0.e12()]
    }

    /// The rotation by `angle` radians about `axis`, a direction of any length: counterclockwise as seen with the axis pointing at the
    /// viewer.
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector, Rotor3};
    ///
    /// let quarter = Rotor3::from_axis_angle([0.0, 0.0, 2.0], core::f64::consts::FRAC_PI_2)?;
    /// let [e1, e2, _] = Multivector::<Cl3, f64>::generators();
    /// assert!((quarter.apply(&e1) - e2).norm() < 1e-15);
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Undefined`] if the axis is zero or a number is not finite.
    pub fn from_axis_angle(axis: [T; 3], angle: T) -> Result<Rotor3<T>> {
        let reason = "the axis is zero, or a number is not finite";
        let undefined = || Error::Undefined { operation: "rotor from an axis and an angle", reason };
        let half = angle * T::from_f64(0.5);
        let axis = Multivector::<Cl3, T>::vector(axis).normalized().map_err(|_| undefined())?;
        if !half.is_finite() {
            return Err(undefined());
        }
        let [x, y, z] = [axis.e1(), axis.e2(), axis.e3()].map(|c| c * half.sin());
        Self::from_quaternion([half.cos(), x, y, z])
    }

    /// The axis, a unit vector, and the angle between 0 and π. Of the identity, which has no axis, e1 and 0.
    pub fn to_axis_angle(&self) -> ([T; 3], T) {
        let [w, x, y, z] = self.to_quaternion();
        let sine = x.hypot(y).hypot(z);
        if sine == T::zero() {
            return ([T::one(), T::zero(), T::zero()], T::zero());
        }
        // R and −R are one rotation.
        let sign = if w < T::zero() { -T::one() } else { T::one() };
        ([x, y, z].map(|c| sign * c / sine), sine.atan2(w * sign) * T::from_f64(2.0))
    }

    /// The matrix, by rows, that moves columns (x, y, z) as this rotor moves vectors.
    ///
    /// ```
    /// use gradewise_core::Rotor3;
    ///
    /// let matrix = [[0.0f64, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
    /// let quarter = Rotor3::from_matrix(&matrix)?;
    /// for (row, expected) in quarter.to_matrix().iter().flatten().zip(matrix.iter().flatten()) {
    ///     assert!((row - expected).abs() < 1e-15);
    /// }
    /// # Ok::<(), gradewise_core::Error>(())
    /// ```
    pub fn to_matrix(&self) -> [[T; 3]; 3] {
        let [w, x, y, z] = self.to_quaternion();
        let (one, two) = (T::one(), T::from_f64(2.0));
        [
            [one - two * (y * y + z * z), two * (x * y - w * z), two * (x * z + w * y)],
            [two * (x * y + w * z), one - two * (x * x + z * z), two * (y * z - w * x)],
            [two * (x * z - w * y), two * (y * z + w * x), one - two * (x * x + y * y)],
        ]
    }

    /// The rotation of a matrix, by rows. The rotor is determined up to its sign; the one with a positive scalar part is
    /// taken.
    ///
    /// # Errors
    /// [`Error::Undefined`] unless the matrix is a rotation: orthogonal with determinant 1, each up to half of the digits.
    pub fn from_matrix(matrix: &[[T; 3]; 3]) -> Result<Rotor3<T>> {
        let [[a, b, c], [d, e, f], [g, h, i]] = *matrix;
        let near = |x: T, y: T| (x - y).abs() <= T::epsilon().sqrt();
        let dot = |u: [T; 3], v: [T; 3]| u[0] * v[0] + u[1] * v[1] + u[2] * v[2];
        let rows = matrix;
        let orthonormal = (0..3)
            .all(|r| (r..3).all(|s| near(dot(rows[r], rows[s]), if r == s { T::one() } else { T::zero() })));
        let determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
        if !orthonormal || !near(determinant, T::one()) {
            let reason = "the matrix is no rotation: its rows are not orthonormal, or it reflects";
            return Err(Error::Undefined { operation: "rotor from a matrix", reason });
        }
        // Four times each product of two quaternion components; the row of the largest square loses nothing (Shepperd,
        // "Quaternion from rotation matrix", 1978).
        let one = T::one();
        let rows = [
            [one + a + e + i, h - f, c - g, d - b],
            [h - f, one + a - e - i, b + d, c + g],
            [c - g, b + d, one - a + e - i, f + h],
            [d - b, c + g, f + h, one - a - e + i],
        ];
        let mut largest = 0;
        for row in 1..4 {
            if rows[row][row] > rows[largest][largest] {
                largest = row;
            }
        }
        let quaternion = rows[largest];
        let sign = if quaternion[0] < T::zero() { -one } else { one };
        Self::from_quaternion(quaternion.map(|c| c * sign))
    }
}
