//! Projective and conformal geometry of space: what constructors make contains what it should, and moves as it should.

mod common;

use common::{assert_close, relative_error};
use gradewise_core::{Error, Motor3, Multivector, Pga3, Result, Rotor3, cga3, pga3};
use proptest::prelude::*;

type V = [f64; 3];

fn vectors() -> impl Strategy<Value = V> {
    prop::array::uniform3(-5.0..5.0f64)
}

fn directions() -> impl Strategy<Value = V> {
    vectors().prop_filter("not tiny", |v| length(*v) > 0.5)
}

fn length(v: V) -> f64 {
    dot(v, v).sqrt()
}

fn dot(a: V, b: V) -> f64 {
    (0..3).map(|i| a[i] * b[i]).sum()
}

fn cross([a, b, c]: V, [x, y, z]: V) -> V {
    [b * z - c * y, c * x - a * z, a * y - b * x]
}

fn along(p: V, d: V, t: f64) -> V {
    [0, 1, 2].map(|i| p[i] + t * d[i])
}

fn size<A: gradewise_core::CliffordAlgebra>(x: &Multivector<A, f64>) -> f64 {
    x.coefficients().iter().fold(0.0, |size, c| c.abs().max(size))
}

proptest! {
    #[test]
    fn lines_contain_their_points(p in vectors(), d in directions(), t in -3.0..3.0f64) {
        let line = pga3::line(p, d);
        prop_assert!(size(&(line & pga3::point(along(p, d, t)))) < 1e-12);
        assert_close(&line, &(pga3::point(p) & pga3::point(along(p, d, 1.0))), 1e-12);
        assert_close(&line, &pga3::point(p).join(&pga3::direction(d)), 1e-15);
        let (direction, moment) = pga3::plucker(&line);
        prop_assert!(relative_error(&direction, &d) < 1e-15);
        prop_assert!(relative_error(&moment, &cross(p, d)) < 1e-13 * (1.0 + 25.0 / length(cross(p, d))));
    }

    #[test]
    fn planes_measure_heights(n in directions(), d in -5.0..5.0f64, p in vectors()) {
        let plane = pga3::plane(n[0], n[1], n[2], d);
        let expected = (dot(n, p) + d) / length(n);
        prop_assert!((pga3::height(&pga3::point(p), &plane)? - expected).abs() < 1e-13);
        // The join of point and plane is the same number, but for the weights.
        prop_assert!((plane.vee(&pga3::point(p)).scalar_part().abs() - (expected * length(n)).abs()).abs() < 1e-12);
    }

    #[test]
    fn a_line_meets_a_plane_where_it_should(p in vectors(), d in directions(), n in directions(), offset in -5.0..5.0f64) {
        prop_assume!(dot(d, n).abs() > 0.1);
        let t = -(dot(n, p) + offset) / dot(n, d);
        let plane = pga3::plane(n[0], n[1], n[2], offset);
        let hit = pga3::coordinates(&pga3::line(p, d).meet(&plane))?;
        prop_assert!(relative_error(&hit, &along(p, d, t)) < 1e-11);
    }

    #[test]
    fn directions_turn_but_do_not_shift(d in directions(), by in vectors(), axis in directions(), angle in -3.0..3.0f64) {
        let moved = Motor3::translation(by).apply(&pga3::direction(d));
        assert_close(&moved, &pga3::direction(d), 1e-13);
        let rotor = Rotor3::from_axis_angle(axis, angle)?;
        let turned: V = rotor.apply(&Multivector::vector(d)).vector_part().try_into().expect("three");
        assert_close(&Motor3::from(rotor).apply(&pga3::direction(d)), &pga3::direction(turned), 1e-13);
    }

    #[test]
    fn distances_are_euclidean(a in vectors(), b in vectors(), weight in 0.5..3.0f64) {
        let expected = length(along(a, b, -1.0));
        let found = pga3::distance(&(pga3::point(a) * weight), &(pga3::point(b) * -weight))?;
        prop_assert!((found - expected).abs() < 1e-13);
        let (a, b) = (cga3::point(a), cga3::point(b) * weight);
        prop_assert!((cga3::squared_distance(&a, &b)? - expected * expected).abs() < 1e-11);
        prop_assert!((-2.0 * a.scalar_product(&b) / weight - expected * expected).abs() < 1e-11);
    }

    #[test]
    fn conformal_points_are_null_and_come_back(p in vectors(), weight in 0.5..3.0f64) {
        let point = cga3::point(p) * weight;
        prop_assert!((point * point).coefficients().iter().all(|c| c.abs() < 1e-11));
        prop_assert!(relative_error(&cga3::coordinates(&point)?, &p) < 1e-13);
        assert_close(&cga3::point(p), &(cga3::origin() + Multivector::vector([p[0], p[1], p[2], 0.0, 0.0]) + cga3::infinity() * (dot(p, p) / 2.0)), 1e-14);
    }

    #[test]
    fn spheres_have_centre_radius_and_points(c in vectors(), r in 0.5..4.0f64, d in directions()) {
        let sphere = cga3::sphere(c, r);
        prop_assert!(relative_error(&cga3::center(&sphere)?, &c) < 1e-12);
        prop_assert!((cga3::radius(&sphere)? - r).abs() < 1e-11);
        let on = along(c, d, r / length(d));
        prop_assert!(size(&(cga3::point(on) ^ sphere)) < 1e-11);
        let inside = along(c, d, 0.5 * r / length(d));
        prop_assert!(size(&(cga3::point(inside) ^ sphere)) > 0.01);
    }

    #[test]
    fn circles_have_centre_radius_and_points(c in vectors(), n in directions(), r in 0.5..4.0f64, seed in directions()) {
        let across = cross(n, seed);
        prop_assume!(length(across) > 0.5);
        let circle = cga3::circle(c, n, r)?;
        prop_assert!(relative_error(&cga3::center(&circle)?, &c) < 1e-11);
        prop_assert!((cga3::radius(&circle)? - r).abs() < 1e-11);
        let (one, other) = (along(c, across, r / length(across)), along(c, n, r / length(n)));
        prop_assert!(size(&(cga3::point(one) ^ circle)) < 1e-9);
        prop_assert!(size(&(cga3::point(other) ^ circle)) > 0.01);
    }

    /// Three points make the circle through them, and with infinity their plane; it is the one of normal and distance.
    #[test]
    fn objects_are_products_of_their_points(a in vectors(), b in vectors(), c in vectors()) {
        let normal = cross(along(b, a, -1.0), along(c, a, -1.0));
        prop_assume!(length(normal) > 1.0);
        let [p, q, r] = [a, b, c].map(cga3::point);
        let circle = p ^ q ^ r;
        let center = cga3::center(&circle)?;
        let radius = cga3::radius(&circle)?;
        for point in [a, b, c] {
            prop_assert!((length(along(center, point, -1.0)) - radius).abs() < 1e-9 * radius);
        }
        let plane = circle ^ cga3::infinity();
        let expected = cga3::plane(normal, dot(normal, a) / length(normal))?;
        let ratio = plane.norm() / expected.norm();
        let signed = if (plane + expected * ratio).norm() < (plane - expected * ratio).norm() { -ratio } else { ratio };
        assert_close(&plane, &(expected * signed), 1e-10);
        prop_assert!(cga3::center(&plane).is_err() && cga3::radius(&plane).is_err());
        let line = p ^ q ^ cga3::infinity();
        assert_close(&line, &cga3::line(a, along(b, a, -1.0)), 1e-10);
        prop_assert!(size(&(cga3::point(along(a, along(b, a, -1.0), 0.3)) ^ line)) < 1e-10);
    }

    #[test]
    fn translators_and_dilators_move_points(p in vectors(), by in vectors(), factor in 0.2..5.0f64) {
        let shifted = cga3::coordinates(&cga3::translator(by).apply(&cga3::point(p)))?;
        prop_assert!(relative_error(&shifted, &along(p, by, 1.0)) < 1e-12);
        let grown = cga3::coordinates(&cga3::dilator(factor)?.apply(&cga3::point(p)))?;
        prop_assert!(relative_error(&grown, &p.map(|c| c * factor)) < 1e-12);
        // Together, and on a sphere: the centre moves, the radius grows.
        let both = cga3::dilator(factor)? * cga3::translator(by);
        let sphere = both.apply(&cga3::sphere(p, 1.5));
        prop_assert!((cga3::radius(&sphere)? - 1.5 * factor).abs() < 1e-9);
        prop_assert!(relative_error(&cga3::center(&sphere)?, &along(p, by, 1.0).map(|c| c * factor)) < 1e-9);
        assert_close(&both.log()?.exp()?, both.as_multivector(), 1e-12);
    }
}

#[test]
fn the_null_basis_is_null() {
    let (origin, infinity) = (cga3::origin::<f64>(), cga3::infinity::<f64>());
    assert!((origin * origin).is_zero() && (infinity * infinity).is_zero());
    assert_eq!(origin.scalar_product(&infinity), -1.0);
}

#[test]
fn spheres_apart_meet_in_an_imaginary_circle() -> Result<()> {
    let touch = |distance| cga3::sphere([0.0, 0.0, 0.0], 1.0) & cga3::sphere([distance, 0.0, 0.0], 1.0);
    assert!((cga3::radius(&touch(1.0))? - 0.75f64.sqrt()).abs() < 1e-14);
    assert!((cga3::radius(&touch(4.0))? + 3f64.sqrt()).abs() < 1e-14);
    Ok(())
}

#[test]
fn what_is_at_infinity_is_refused() -> Result<()> {
    let undefined = |error| matches!(error, Error::Undefined { .. });
    let floor: Multivector<Pga3, f64> = pga3::plane(0.0, 0.0, 0.0, 1.0);
    assert!(undefined(pga3::height(&pga3::point([0.0; 3]), &floor).expect_err("no normal")));
    let far = pga3::direction([1.0, 0.0, 0.0]);
    assert!(undefined(pga3::distance(&far, &pga3::point([0.0; 3])).expect_err("infinite")));
    assert!(undefined(cga3::coordinates(&cga3::infinity::<f64>()).expect_err("infinite")));
    assert!(undefined(cga3::dilator(-1.0).expect_err("a reflection")));
    assert!(undefined(cga3::plane([0.0; 3], 1.0).expect_err("no normal")));
    assert!(undefined(cga3::circle([0.0; 3], [0.0; 3], 1.0).expect_err("no normal")));
    Ok(())
}
