//! Rotations as quaternions, matrices, axes with angles; motions as matrices; interpolation.

mod common;

use common::{assert_close, relative_error};
use gradewise_core::{
    Cl3, Error, Motor3, Multivector, Result, Rotor, Rotor2, Rotor3, Sta, cga3::Conformal3, pga3,
};
use proptest::prelude::*;
use std::f64::consts::{PI, TAU};

fn quaternion() -> impl Strategy<Value = [f64; 4]> {
    prop::array::uniform4(-1.0..1.0f64).prop_filter("not tiny", |q| q.iter().any(|c| c.abs() > 0.1))
}

fn rotors() -> impl Strategy<Value = Rotor3> {
    quaternion().prop_map(|q| Rotor3::from_quaternion(q).expect("not zero"))
}

fn vectors() -> impl Strategy<Value = [f64; 3]> {
    prop::array::uniform3(-5.0..5.0f64)
}

/// Hamilton's product, written out.
fn hamilton([a, b, c, d]: [f64; 4], [w, x, y, z]: [f64; 4]) -> [f64; 4] {
    [
        a * w - b * x - c * y - d * z,
        a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x,
        a * z + b * y - c * x + d * w,
    ]
}

fn moved<const N: usize>(matrix: &[[f64; N]; N], x: [f64; N]) -> [f64; N] {
    matrix.map(|row| row.iter().zip(x).map(|(m, x)| m * x).sum())
}

proptest! {
    #[test]
    fn quaternions_multiply_as_rotors(p in rotors(), q in rotors()) {
        let expected = hamilton(p.to_quaternion(), q.to_quaternion());
        prop_assert!(relative_error(&(p * q).to_quaternion(), &expected) < 1e-15);
    }

    /// q v q⁻¹ with the quaternion of a vector.
    #[test]
    fn quaternions_act_as_rotors(r in rotors(), v in vectors()) {
        let [w, x, y, z] = r.to_quaternion();
        let [_, expected @ ..] = hamilton(hamilton([w, x, y, z], [0.0, v[0], v[1], v[2]]), [w, -x, -y, -z]);
        let turned = r.apply(&Multivector::vector(v));
        prop_assert!(relative_error(turned.vector_part(), &expected) < 1e-14);
    }

    #[test]
    fn matrices_act_as_rotors(r in rotors(), v in vectors()) {
        let matrix = r.to_matrix();
        let turned = r.apply(&Multivector::vector(v));
        prop_assert!(relative_error(turned.vector_part(), &moved(&matrix, v)) < 1e-14);
        let back = Rotor3::from_matrix(&matrix)?;
        prop_assert!(relative_error(back.apply(&Multivector::vector(v)).vector_part(), &moved(&matrix, v)) < 1e-14);
        prop_assert!(back.to_quaternion()[0] >= 0.0);
    }

    #[test]
    fn axis_and_angle_come_back(axis in vectors(), angle in -PI..PI) {
        prop_assume!(axis.iter().map(|c| c * c).sum::<f64>() > 0.01);
        let rotor = Rotor3::from_axis_angle(axis, angle)?;
        let (back, found) = rotor.to_axis_angle();
        prop_assert!((0.0..=PI).contains(&found));
        prop_assert!((found - angle.abs()).abs() < 1e-14);
        prop_assert!((back.iter().map(|c| c * c).sum::<f64>() - 1.0).abs() < 1e-14);
        assert_close(&Rotor3::from_axis_angle(back, found)?.apply(&Multivector::vector(axis)), &Multivector::vector(axis), 1e-14);
        // The axis stays, and what is perpendicular to it turns by the angle.
        let aligned = rotor.apply(&Multivector::vector(axis));
        prop_assert!(relative_error(aligned.vector_part(), &axis) < 1e-14);
        let generator = Multivector::<Cl3, f64>::vector(axis).hodge_star();
        assert_close(Rotor3::from_plane_angle(&generator, angle)?.as_multivector(), rotor.as_multivector(), 1e-14);
    }

    #[test]
    fn slerp_moves_at_constant_speed(a in rotors(), b in rotors(), t in 0.0..1.0f64) {
        let at = |t| a.slerp(&b, t);
        let angle = |from: &Rotor3, to: &Rotor3| (*to * from.inverse()).to_axis_angle().1;
        prop_assume!(angle(&a, &b) < PI - 1e-3);
        prop_assert!((angle(&a, &at(t)?) - t * angle(&a, &b)).abs() < 1e-7);
        let v = Multivector::vector([1.0, 2.0, 3.0]);
        assert_close(&at(0.0)?.apply(&v), &a.apply(&v), 1e-13);
        assert_close(&at(1.0)?.apply(&v), &b.apply(&v), 1e-12);
        // The opposite sign is the same rotation.
        let opposite = Rotor::new(-Multivector::from(b))?;
        assert_close(&a.slerp(&opposite, t)?.apply(&v), &at(t)?.apply(&v), 1e-12);
    }

    #[test]
    fn motions_are_rotations_then_translations(r in rotors(), d in vectors(), p in vectors()) {
        let motor = Motor3::from_rotation_translation(&r, d);
        let expected = moved(&r.to_matrix(), p);
        let expected = [0, 1, 2].map(|i| expected[i] + d[i]);
        let close = |found: [f64; 3]| relative_error(&found, &expected) < 1e-13;
        prop_assert!(close(pga3::coordinates(&motor.apply(&pga3::point(p)))?));
        assert_close(motor.rotation().as_multivector(), r.as_multivector(), 1e-15);
        prop_assert!(relative_error(&motor.displacement()?, &d) < 1e-13);
        let matrix = motor.to_matrix()?;
        let [x, y, z, one] = moved(&matrix, [p[0], p[1], p[2], 1.0]);
        prop_assert!(close([x, y, z]) && one == 1.0);
        let back = Motor3::from_matrix(&matrix)?;
        prop_assert!(close(pga3::coordinates(&back.apply(&pga3::point(p)))?));
        // The rotation alone, as a motor and as a conformal rotor.
        let turned = moved(&r.to_matrix(), p);
        let [at, conformal] = [
            pga3::coordinates(&Motor3::from(r).apply(&pga3::point(p)))?,
            gradewise_core::cga3::coordinates(&Conformal3::from(r).apply(&gradewise_core::cga3::point(p)))?,
        ];
        prop_assert!(relative_error(&at, &turned) < 1e-13 && relative_error(&conformal, &turned) < 1e-13);
    }

    #[test]
    fn the_plane_turns_as_complex_numbers(a in -10.0..10.0f64, b in -10.0..10.0f64, v in prop::array::uniform2(-5.0..5.0f64)) {
        let (first, second) = (Rotor2::from_angle(a), Rotor2::from_angle(b));
        let difference = ((second * first).angle() - a - b).rem_euclid(TAU);
        prop_assert!(difference.min(TAU - difference) < 1e-13);
        let matrix = first.to_matrix();
        prop_assert!(relative_error(first.apply(&Multivector::vector(v)).vector_part(), &moved(&matrix, v)) < 1e-14);
        for back in [Rotor2::from_matrix(&matrix)?, Rotor2::from_complex(first.to_complex().map(|c| 3.0 * c))?] {
            prop_assert!(relative_error(back.apply(&Multivector::vector(v)).vector_part(), &moved(&matrix, v)) < 1e-14);
        }
    }
}

#[track_caller]
fn assert_undefined<T: std::fmt::Debug>(result: Result<T>, why: &str) {
    match result {
        Err(Error::Undefined { reason, .. }) => assert!(reason.contains(why), "{reason}"),
        other => panic!("expected an error about `{why}`, got {other:?}"),
    }
}

#[test]
fn what_is_no_rotation_is_refused() {
    assert_undefined(Rotor3::from_quaternion([0.0; 4]), "zero or not finite");
    assert_undefined(Rotor3::from_quaternion([f64::NAN, 0.0, 0.0, 1.0]), "zero or not finite");
    assert_undefined(Rotor3::from_axis_angle([0.0; 3], 1.0), "axis is zero");
    assert_undefined(Rotor3::from_axis_angle([1.0, 0.0, 0.0], f64::INFINITY), "not finite");
    let reflection = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]];
    assert_undefined(Rotor3::from_matrix(&reflection), "reflects");
    assert_undefined(
        Rotor3::from_matrix(&[[2.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]]),
        "orthonormal",
    );
    assert_undefined(Rotor2::from_matrix(&[[1.0, 0.0], [0.0, -1.0]]), "reflects");
    assert_undefined(Rotor2::from_complex([0.0, 0.0]), "zero");
    let shear = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]];
    assert_undefined(Motor3::from_matrix(&shear), "last row");
}

#[test]
fn half_turns_about_every_axis_survive_matrices() -> Result<()> {
    for axis in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.6, 0.0, 0.8], [0.48, -0.6, 0.64]] {
        let matrix = Rotor3::from_axis_angle(axis, PI)?.to_matrix();
        let back = Rotor3::from_matrix(&matrix)?.to_matrix();
        assert!(relative_error(&back.concat(), &matrix.concat()) < 1e-15);
    }
    Ok(())
}

/// The halfway boost between two observers, by slerp in space-time.
#[test]
fn slerp_interpolates_boosts() -> Result<()> {
    let [t, x, ..] = Multivector::<Sta, f64>::generators::<4>();
    let boost = Rotor::<Sta, f64>::from_plane_angle(&(t ^ x), 1.0)?;
    let half = Rotor::identity().slerp(&boost, 0.5)?;
    assert_close(half.as_multivector(), Rotor::from_plane_angle(&(t ^ x), 0.5)?.as_multivector(), 1e-15);
    Ok(())
}
