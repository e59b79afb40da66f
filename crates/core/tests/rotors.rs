//! Exponentials, logarithms and rotors in floating point.

mod common;

use common::{Float, algebra, any_algebra, assert_close, relative_error};
use gradewise_core::{
    Algebra, Cl, Cl2, Cl3, Cl5, CliffordAlgebra, Error, Motor3, Multivector, Pga3, Result, Rotor, Rotor2,
    Rotor3, Sta, TypeLevel, pga3,
};
use proptest::{collection::vec, prelude::*};
use std::f64::consts::{FRAC_PI_2, PI};

/// exp by its power series, which needs no closed form.
fn exp_by_series(x: &Float) -> Result<Float> {
    let mut term = x.algebra().scalar(1.0);
    let mut sum = term.clone();
    for k in 1..60 {
        term = term.geometric_product(x)?.scaled(&(1.0 / f64::from(k)));
        sum = sum.plus(&term)?;
    }
    Ok(sum)
}

/// A bound of the relative error of the power series of a rotation, whose terms grow to e^‖B‖ before they cancel.
fn error_of_series(bivector: &Float) -> f64 {
    let square: f64 = bivector.coefficients().iter().map(|c| c * c).sum();
    (8.0 * f64::EPSILON * square.sqrt().exp()).max(1e-14)
}

/// A bivector with components between −1 and 1, so that its rotation part is clear of π.
fn bivector(algebra: &Algebra) -> impl Strategy<Value = Float> + use<> {
    let algebra = algebra.clone();
    let planes = algebra.blades_of_grade(2);
    vec(-1.0..1.0f64, planes.len()).prop_map(move |c| {
        let mut bivector = algebra.zero();
        bivector.coefficients_mut()[planes.clone()].copy_from_slice(&c);
        bivector
    })
}

/// Bivectors all of which have a closed form: n ≤ 3 and Cl(3,0,1).
fn closed_form_bivector() -> impl Strategy<Value = Float> {
    prop_oneof![any_algebra(3), Just(algebra(3, 0, 1))].prop_flat_map(|algebra| bivector(&algebra))
}

/// Two vectors of one algebra.
fn vectors(max: u8) -> impl Strategy<Value = (Float, Float)> {
    any_algebra(max).prop_flat_map(|algebra| {
        let n = algebra.dimension();
        let vector = move |c: Vec<f64>| algebra.vector(&c).expect("one per generator");
        (vec(-1.0..1.0f64, n), vec(-1.0..1.0f64, n)).prop_map(move |(a, b)| (vector(a), vector(b)))
    })
}

fn components<A: TypeLevel, const N: usize>() -> impl Strategy<Value = Multivector<A, f64>> {
    prop::array::uniform::<_, N>(-1.0..1.0f64)
        .prop_filter("not tiny", |c| c.iter().any(|c| c.abs() > 0.1))
        .prop_map(Multivector::vector)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// −R is a rotor of the same action, and `shortest` chooses one of the two, whichever it is given.
    #[test]
    fn both_signs_act_alike_and_have_one_shortest(b in closed_form_bivector(), scale in 0.0..6.0f64) {
        let rotor = Rotor::exp(&b.scaled(&scale))?;
        let negative = -&rotor;
        prop_assert!((negative.as_multivector().plus(rotor.as_multivector())?).coefficients().iter().all(|c| *c == 0.0));
        let x = b.algebra().vector(&vec![0.7; b.algebra().dimension()])?;
        assert_close(&negative.apply(&x)?, &rotor.apply(&x)?, 1e-15);
        let shortest = rotor.shortest();
        prop_assert!(shortest.as_multivector().scalar_part() >= 0.0);
        prop_assert!(shortest == rotor || shortest == -rotor.clone());
        if rotor.as_multivector().scalar_part() != 0.0 {
            prop_assert_eq!(negative.shortest(), shortest);
        }
    }

    #[test]
    fn exp_is_its_power_series(b in closed_form_bivector()) {
        assert_close(&b.exp()?, &exp_by_series(&b)?, error_of_series(&b));
    }

    #[test]
    fn exp_of_a_simple_bivector_in_any_algebra((a, b) in vectors(6)) {
        let plane = a.outer_product(&b)?;
        assert_close(&plane.exp()?, &exp_by_series(&plane)?, error_of_series(&plane));
    }

    #[test]
    fn log_takes_exp_back(b in closed_form_bivector()) {
        assert_close(&b.exp()?.log()?, &b, 1e-11);
    }

    #[test]
    fn log_takes_exp_back_for_simple_bivectors((a, b) in vectors(6)) {
        let plane = a.outer_product(&b)?;
        // Shorter than π, so that the logarithm is this one and no other.
        let plane = plane.scaled(&(1.0 / (1.0 + plane.norm())));
        prop_assert!(relative_error(plane.exp()?.log()?.coefficients(), plane.coefficients()) <= 1e-11);
    }

    #[test]
    fn exp_is_a_rotor(b in closed_form_bivector()) {
        let rotor = Rotor::exp(&b)?;
        let one = b.algebra().scalar(1.0);
        let r = rotor.as_multivector();
        assert_close(&r.reverse().geometric_product(r)?, &one, 1e-13);
        prop_assert!(Rotor::new(r.clone()).is_ok());
    }

    /// Powers of one rotor add their exponents.
    #[test]
    fn powers_follow_one_path(b in closed_form_bivector(), t in -1.0..1.0f64) {
        let rotor = Rotor::exp(&b)?;
        let there = rotor.powf(t)?;
        let rest = rotor.powf(1.0 - t)?;
        assert_close(there.after(&rest)?.as_multivector(), rotor.as_multivector(), 1e-11);
    }

    #[test]
    fn rotors_act_as_sandwiches(b in closed_form_bivector(), seed in vec(-1.0..1.0f64, 16)) {
        let algebra = b.algebra();
        let x = algebra.multivector(&seed[..algebra.blade_count()])?;
        let rotor = Rotor::exp(&b)?;
        let moved = rotor.apply(&x)?;
        assert_close(&moved, &rotor.as_multivector().sandwich(&x)?, 1e-12);
        assert_close(&rotor.inverse().apply(&moved)?, &x, 1e-12);
        // Error in proportion to the moved element: boosts stretch.
        prop_assert!((moved.squared_norm() - x.squared_norm()).abs() <= 1e-12 * (1.0 + moved.coefficients().iter().map(|c| c * c).sum::<f64>()));
        for grade in 0..=algebra.dimension() {
            assert_close(&rotor.apply(&x.grade(grade))?, &moved.grade(grade), 1e-11);
            prop_assert_eq!(rotor.apply(&x.grade(grade))?.grades(), x.grade(grade).grades());
        }
    }

    /// In Euclidean space of 2 to 5 dimensions every direction turns into every other.
    #[test]
    fn rotor_maps_a_to_b_2d(a in components::<Cl2, 2>(), b in components::<Cl2, 2>()) {
        check_between(&a, &b)?;
    }

    #[test]
    fn rotor_maps_a_to_b_3d(a in components::<Cl3, 3>(), b in components::<Cl3, 3>()) {
        check_between(&a, &b)?;
        check_between(&a, &-a)?;
    }

    #[test]
    fn rotor_maps_a_to_b_5d(a in components::<Cl5, 5>(), b in components::<Cl5, 5>()) {
        check_between(&a, &b)?;
        check_between(&a, &-a)?;
    }

    /// Directions opposite up to a perturbation of any size, down to below rounding.
    #[test]
    fn nearly_opposite_directions_are_no_trouble(
        a in components::<Cl3, 3>(), b in components::<Cl3, 3>(), digits in 0..20i32,
    ) {
        check_between(&a, &(b * 10f64.powi(-digits) - a))?;
    }

    /// Two future-pointing timelike vectors are connected by a boost.
    #[test]
    fn boosts_connect_observers(u in prop::array::uniform3(-0.5..0.5f64), v in prop::array::uniform3(-0.5..0.5f64)) {
        let observer = |[x, y, z]: [f64; 3]| Multivector::<Sta, f64>::vector([1.0, x, y, z]);
        check_between(&observer(u), &observer(v))?;
    }

    /// In any metric: a rotor that does it, or an error, never a wrong rotor.
    #[test]
    fn rotor_between_vectors_is_right_or_refused((a, b) in vectors(5)) {
        match Rotor::from_vectors(&a, &b) {
            Ok(rotor) => {
                let scale = rotor.as_multivector().coefficients().iter().map(|c| c * c).sum::<f64>();
                let (a, b) = (a.normalized()?, b.normalized()?);
                assert_close(&rotor.apply(&a)?, &b, 1e-13 * (1.0 + scale * scale));
            }
            Err(error) => {
                let signature = a.algebra().signature();
                prop_assert!(matches!(error, Error::Undefined { .. }), "{error}");
                prop_assert!(signature.r > 0 || signature.p * signature.q > 0 || signature.dimension() == 1 || a.is_zero() || b.is_zero(), "{error}");
            }
        }
    }

    /// The angle is half of what it is between the vectors, the plane is theirs.
    #[test]
    fn rotor_between_vectors_is_the_shortest(a in components::<Cl3, 3>(), b in components::<Cl3, 3>()) {
        let cosine = a.scalar_product(&b) / (a.norm() * b.norm());
        prop_assume!(cosine.abs() < 0.999);
        let log = Rotor3::from_vectors(&a, &b)?.log()?;
        prop_assert!((2.0 * log.norm() - cosine.acos()).abs() < 1e-12);
        assert_close(&(log / log.norm()), &-a.outer_product(&b).normalized()?, 1e-12);
    }

    #[test]
    fn plane_and_angle_turn_the_first_vector_towards_the_second(
        a in components::<Cl3, 3>(), b in components::<Cl3, 3>(), angle in -3.0..3.0f64,
    ) {
        let plane = a.outer_product(&b);
        prop_assume!(plane.norm() > 0.01);
        let unit = a.normalized()?;
        let across = unit.left_contraction(&plane).normalized()?;
        let rotor = Rotor3::from_plane_angle(&plane, angle)?;
        assert_close(&rotor.apply(&unit), &(unit * angle.cos() + across * angle.sin()), 1e-12);
    }

    #[test]
    fn composition_acts_right_to_left(a in components::<Cl3, 3>(), b in components::<Cl3, 3>(), x in components::<Cl3, 3>()) {
        let (first, second) = (Rotor3::from_vectors(&a, &b)?, Rotor3::from_vectors(&x, &a)?);
        assert_close(&(second * first).apply(&x), &second.apply(&first.apply(&x)), 1e-13);
    }

    #[test]
    fn motors_move_points_rigidly(
        b in vec(-1.0..1.0f64, 6), p in prop::array::uniform3(-5.0..5.0f64), q in prop::array::uniform3(-5.0..5.0f64),
    ) {
        let mut bivector = Multivector::<Pga3, f64>::zero();
        bivector.coefficients_mut()[5..11].copy_from_slice(&b);
        let motor = Motor3::exp(&bivector)?;
        let distance = |a: [f64; 3], b: [f64; 3]| (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt();
        let moved = |p| pga3::coordinates(&motor.apply(&pga3::point(p)));
        prop_assert!((distance(moved(p)?, moved(q)?) - distance(p, q)).abs() < 1e-12 * (1.0 + distance(p, q)));
        // The weight of a point stays, so it stays a point and no reflection of one.
        prop_assert!((motor.apply(&pga3::point(p)).coefficients()[11] - 1.0).abs() < 1e-13);
    }

    #[test]
    fn translations_add(d in prop::array::uniform3(-5.0..5.0f64), p in prop::array::uniform3(-5.0..5.0f64)) {
        let moved = pga3::coordinates(&Motor3::translation(d).apply(&pga3::point(p)))?;
        let expected = [d[0] + p[0], d[1] + p[1], d[2] + p[2]];
        prop_assert!(relative_error(&moved, &expected) < 1e-13);
        let back = Motor3::translation(d).log()?.exp()?;
        assert_close(&back, Motor3::translation(d).as_multivector(), 1e-15);
    }

    #[test]
    fn single_precision_is_as_good_as_it_can_be(a in components::<Cl3, 3>(), b in components::<Cl3, 3>()) {
        let single = |x: &Multivector<Cl3, f64>| {
            let c: Vec<f32> = x.coefficients().iter().map(|&c| c as f32).collect();
            Multivector::<Cl3, f32>::from_coefficients(&c)
        };
        let (a, b) = (single(&a)?.normalized()?, single(&b)?.normalized()?);
        let rotor = Rotor3::from_vectors(&a, &b)?;
        prop_assert!((rotor.apply(&a) - b).norm() < 1e-5);
        prop_assert!((Rotor3::exp(&rotor.log()?)?.apply(&a) - b).norm() < 1e-5);
    }
}

/// R takes the direction of a to the direction of b, and is a rotor.
fn check_between<A: CliffordAlgebra>(
    a: &Multivector<A, f64>,
    b: &Multivector<A, f64>,
) -> std::result::Result<(), TestCaseError> {
    let rotor = Rotor::from_vectors(a, b)?;
    assert_close(&A::into_result(rotor.apply(&a.normalized()?))?, &b.normalized()?, 1e-13);
    prop_assert!((rotor.as_multivector().squared_norm() - 1.0).abs() < 1e-14);
    Ok(())
}

#[track_caller]
fn assert_undefined<T: std::fmt::Debug>(result: Result<T>, why: &str) {
    match result {
        Err(Error::Undefined { reason, .. }) => assert!(reason.contains(why), "{reason}"),
        other => panic!("expected an error about `{why}`, got {other:?}"),
    }
}

#[test]
fn rotors_of_the_plane_are_complex_numbers() -> Result<()> {
    let [e1, e2] = Multivector::<Cl2, f64>::generators();
    let quarter = Rotor2::from_plane_angle(&(e1 * e2), FRAC_PI_2)?;
    assert_close(&quarter.apply(&e1), &e2, 1e-15);
    assert_close(&quarter.apply(&e2), &-e1, 1e-15);
    assert_eq!(Rotor2::identity().apply(&e1), e1);
    Ok(())
}

#[test]
fn logarithm_covers_whole_and_half_turns() -> Result<()> {
    let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
    let minus_one = Multivector::<Cl3, f64>::scalar(-1.0);
    assert_close(&minus_one.log()?.exp()?, &minus_one, 1e-15);
    assert_close(&(e2 * e3).log()?, &(e2 * e3 * FRAC_PI_2), 1e-15);
    assert!(Multivector::<Cl3, f64>::scalar(1.0).log()?.is_zero());
    // Just short of a full turn: the angle keeps its place below 2π.
    let rotor = Rotor3::from_plane_angle(&(e1 * e3), 2.0 * PI - 1e-6)?;
    assert!((2.0 * rotor.log()?.norm() - (2.0 * PI - 1e-6)).abs() < 1e-12);
    Ok(())
}

#[test]
fn small_angles_keep_their_digits() -> Result<()> {
    for exponent in [1, 4, 8, 12, 100, 150] {
        let x = 10f64.powi(-exponent);
        for text in ["e12", "e14", "e12 + 3e34 + 2e14", "e13 + 2e24"] {
            let b = text.parse::<Multivector<Pga3, f64>>()? * x;
            assert_close(&b.exp()?.log()?, &b, 1e-15);
        }
    }
    Ok(())
}

#[test]
fn what_has_no_exponential_or_logarithm_is_refused() -> Result<()> {
    let four = algebra(4, 0, 0);
    assert_undefined(four.parse::<f64>("(inf)e12")?.exp(), "finite");
    assert_undefined(four.parse::<f64>("e1")?.exp(), "bivector");
    assert_undefined(four.parse::<f64>("1 + e12")?.exp(), "bivector");
    let three_planes = algebra(6, 0, 0).parse::<f64>("e12 + 2e34 + 3e56")?.exp()?;
    assert_close(&three_planes.log()?.exp()?, &three_planes, 1e-13);
    // Minus a boost in one plane, a rotation in the other.
    let split = algebra(2, 2, 0);
    let boosts = [split.parse::<f64>("e13")?.exp()?, split.parse::<f64>("2e24")?.exp()?];
    assert_undefined(boosts[0].geometric_product(&boosts[1])?.scaled(&-1.0).log(), "minus a boost");
    assert_undefined(four.parse::<f64>("2")?.log(), "only rotors");
    assert_undefined(four.parse::<f64>("e1")?.log(), "only rotors");
    assert_undefined(algebra(1, 1, 0).parse::<f64>("e12")?.exp()?.scaled(&-1.0).log(), "minus a boost");
    assert_undefined(algebra(1, 0, 1).parse::<f64>("−1 − e12")?.log(), "minus a boost");
    Ok(())
}

#[test]
fn unconnected_vectors_are_refused() -> Result<()> {
    let line = Multivector::<Cl<1, 0, 0>, f64>::vector([1.0]);
    assert_undefined(Rotor::from_vectors(&line, &-line), "no rotation");
    let [time, x, ..] = Multivector::<Sta, f64>::generators::<4>();
    assert_undefined(Rotor::from_vectors(&time, &-time), "no rotation");
    assert_undefined(Rotor::from_vectors(&time, &x), "positive square");
    assert_undefined(Rotor::from_vectors(&time, &(time + x)), "norm is zero");
    assert_undefined(Rotor::from_vectors(&time, &Multivector::zero()), "vectors other than zero");
    assert_undefined(Rotor::from_vectors(&time, &(time * x)), "vectors other than zero");
    assert_undefined(Rotor::new(time * 1.5 * x), "normalize");
    let (a, b) = (algebra(2, 0, 0).generator::<f64>(0)?, algebra(3, 0, 0).generator::<f64>(0)?);
    assert!(matches!(Rotor::from_vectors(&a, &b), Err(Error::AlgebraMismatch { .. })));
    Ok(())
}

#[test]
fn planes_meet_and_points_join() -> Result<()> {
    // x = 1, y = 2, z = 3.
    let planes = [pga3::plane(1, 0, 0, -1), pga3::plane(0, 1, 0, -2), pga3::plane(0, 0, 1, -3)];
    let point = planes[0].outer_product(&planes[1]).outer_product(&planes[2]);
    assert_eq!(point, pga3::point([1, 2, 3]));
    assert_eq!(pga3::coordinates(&point)?, [1, 2, 3]);
    // Points lie on the planes through them: their join is zero.
    assert!(planes.iter().all(|plane| plane.regressive_product(&point).is_zero()));
    assert!(!planes[0].regressive_product(&pga3::point([0, 2, 3])).is_zero());
    let parallel = planes[0].outer_product(&pga3::plane(1, 0, 0, 5)).outer_product(&planes[1]);
    assert_undefined(pga3::coordinates(&parallel), "infinity");
    Ok(())
}
