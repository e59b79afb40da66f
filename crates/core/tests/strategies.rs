//! Laws on what `strategies` draw: numbers of every size, motions far away, what is close to half and full turns.

mod common;

use common::{Float, algebra};
use gradewise_core::{
    Algebra, Blade, Cl, Cl3, Cl4, CliffordAlgebra, Error, Motor3, Multivector, Pga3, Result, Rotor, Rotor3,
    Signature, TypeLevel, pga3,
    strategies::{any_algebra, any_motor, any_multivector, any_number, any_rotor, any_versor},
};
use proptest::prelude::*;

fn size<A: CliffordAlgebra>(x: &Multivector<A, f64>) -> f64 {
    x.coefficients().iter().fold(0.0, |size, c| size.max(c.abs()))
}

/// The largest difference; infinite where something is not a number.
fn distance<A: CliffordAlgebra>(a: &Multivector<A, f64>, b: &Multivector<A, f64>) -> f64 {
    let differences = a.coefficients().iter().zip(b.coefficients()).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |largest: f64, d| if d.is_nan() { f64::INFINITY } else { largest.max(d) })
}

/// An algebra with a rotor of it.
fn rotors(generators: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = Rotor<Algebra, f64>> {
    any_algebra(generators).prop_flat_map(|algebra| any_rotor(&algebra))
}

fn multivectors(generators: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = Float> {
    any_algebra(generators).prop_flat_map(|algebra| any_multivector(&algebra))
}

/// What boosts cannot reach in one motion, so that a refusal may be true.
fn may_have_no_logarithm(signature: Signature) -> bool {
    signature.p > 0 && signature.q > 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn text_comes_back(x in multivectors(0..=6)) {
        prop_assert_eq!(&x.algebra().parse::<f64>(&x.to_string())?, &x);
    }

    #[test]
    fn grades_add_up(x in multivectors(0..=8)) {
        let mut sum = x.algebra().zero();
        for grade in 0..=x.algebra().dimension() {
            sum = sum.plus(&x.grade(grade))?;
        }
        prop_assert_eq!(sum, x.clone());
        prop_assert_eq!(x.dual().undual(), x);
    }

    /// Vectors of any size have units, in Euclidean space.
    #[test]
    fn vectors_of_any_size_have_units(v in prop::array::uniform3(any_number::<f64>()), w in prop::array::uniform3(any_number::<f32>())) {
        prop_assume!(v.iter().any(|&c| c != 0.0) && w.iter().any(|&c| c != 0.0));
        let unit = Multivector::<Cl3, f64>::vector(v).normalized()?;
        // Subnormal components have fewer digits.
        let digits = if v.iter().all(|c| c.abs() < 1e-290) { 1e-3 } else { 1e-14 };
        prop_assert!((unit.norm() - 1.0).abs() < digits);
        prop_assert!(Multivector::<Cl3, f32>::vector(w).normalized().is_ok());
        prop_assert!(Rotor3::from_axis_angle(v, 0.3).is_ok());
        prop_assert!(Rotor3::from_quaternion([v[0], v[1], v[2], v[0]]).is_ok());
        prop_assert!(Rotor3::from_quaternion([w[0], w[1], w[2], w[0]]).is_ok());
    }

    #[test]
    fn versors_have_inverses(v in any_algebra(1..=5).prop_flat_map(|algebra| any_versor::<_, f64>(&algebra))) {
        let inverse = v.inverse()?;
        let product = v.geometric_product(&inverse)?;
        let error = distance(&product, &v.algebra().scalar(1.0));
        prop_assert!(error <= 1e-12 * (1.0 + size(&v) * size(&inverse)), "{error:e} {v}");
        // And so have their multiples, of any size.
        let tiny = v.scaled(&1e-140);
        let error = distance(&tiny.geometric_product(&tiny.inverse()?)?, &v.algebra().scalar(1.0));
        prop_assert!(error <= 1e-12 * (1.0 + size(&v) * size(&inverse)), "{error:e} {v}");
    }

    #[test]
    fn rotors_are_rotors(r in rotors(1..=6)) {
        let m = r.as_multivector();
        prop_assert!(Rotor::new(m.clone()).is_ok(), "{m}");
        let again = r.renormalized()?;
        let scale = size(m).powi(2).max(1.0);
        prop_assert!(distance(again.as_multivector(), m) <= 1e-12 * scale, "{m}");
        // With something else in it, it is none.
        let odd = m.plus(&m.algebra().generator(0)?.scaled(&1e-9))?;
        prop_assert!(Rotor::new(odd).is_err() || size(m) > 100.0);
        prop_assert!(Rotor::new(m.scaled(&1.001)).is_err() || size(m) > 100.0);
    }

    /// exp(log R) = R, for what is an exponential: each coefficient to 1e-12 of those that it may depend on.
    #[test]
    fn logarithms_lead_back(r in rotors(2..=5)) {
        let m = r.as_multivector();
        match r.log() {
            Ok(log) => {
                let error = distance(&log.exp()?, m);
                // Close to a full turn with a translation across, the axis is far away.
                let far = size(&log) > 1e3 * size(m).max(1.0);
                let tolerance = if far { 1e-7 } else { 1e-12 };
                prop_assert!(error <= tolerance * size(m).max(1.0).powi(2), "{error:e}: R = {m}, log = {log}");
            }
            Err(error) => prop_assert!(may_have_no_logarithm(m.algebra().signature()), "{error}: {m}"),
        }
    }

    #[test]
    fn logarithms_of_rotations_in_six_dimensions(r in any_rotor::<_, f64>(&Cl::<6, 0, 0>)) {
        if let Ok(log) = r.log() {
            prop_assert!(distance(&log.exp()?, r.as_multivector()) <= 1e-12);
        }
    }

    /// Motors are right at any distance: halves make the whole.
    #[test]
    fn motors_have_halves(m in any_motor::<f64>()) {
        let half = m.powf(0.5)?;
        let far = size(half.as_multivector()).max(size(m.as_multivector())).max(1.0);
        let whole = half * half;
        let log = m.log()?;
        let error = distance(&log.exp()?, m.as_multivector());
        // δ short of a full turn the axis may be 1 / δ away, and halves move by as much.
        let turn = (m.as_multivector().scalar_part() + 1.0).abs();
        let short = (2.0 * m.rotation().as_multivector().grade(2).norm()).max(f64::MIN_POSITIVE);
        let axis = if turn < 1e-6 { 16.0 * short.min(f64::EPSILON / short) } else { 0.0 };
        prop_assert!(error <= axis * size(m.as_multivector()) + 1e-11 * far, "{error:e} {m} {log}");
        prop_assert!(distance(whole.as_multivector(), m.as_multivector()) <= 1e-11 * far * far || turn < 1e-6, "{m}");
        prop_assert!(distance(m.renormalized()?.as_multivector(), m.as_multivector()) <= 1e-14 * far);
        prop_assert!(m.as_multivector().sandwich(&pga3::point([0.0; 3])).is_ok());
    }

    /// Close to a full turn, with a translation across, there is a logarithm at any distance from the full turn: of an axis far
    /// away, or of a full turn about an axis at hand.
    #[test]
    fn motors_near_full_turns_have_logarithms(
        axis in prop::array::uniform3(-1.0..1.0f64), digits in -16.0..-3.0f64, shift in prop::array::uniform3(-1.0..1.0f64),
        far in -6.0..6.0f64,
    ) {
        prop_assume!(axis.iter().any(|c| c.abs() > 0.1) && shift.iter().any(|c| c.abs() > 0.1));
        let (short, far) = (10f64.powf(digits), 10f64.powf(far));
        let turn = Rotor3::from_axis_angle(axis, short)?;
        let m = Motor3::from_rotation_translation(&turn, shift.map(|c| c * far)).into_multivector();
        let m = Rotor::<Pga3, f64>::new(-&m)?;
        let error = distance(&m.log()?.exp()?, m.as_multivector());
        let tolerance = 16.0 * short.min(f64::EPSILON / short) + 1e-11;
        prop_assert!(error <= tolerance * far.max(1.0), "{error:e} {m}");
        // In single precision as well.
        let rounded: Vec<f32> = m.as_multivector().coefficients().iter().map(|&c| c as f32).collect();
        let near = Multivector::<Pga3, f32>::from_coefficients(&rounded)?;
        prop_assert!(Rotor::new(near)?.log().is_ok(), "{near}");
    }

    #[test]
    fn single_precision_reaches_a_million_units(m in any_motor::<f32>(), normal in prop::array::uniform3(-1.0f32..1.0), d in -1e6f32..1e6) {
        prop_assert!(m.renormalized().is_ok(), "{m}");
        prop_assert!(Rotor::new(*m.as_multivector()).is_ok());
        prop_assert!(m.log().is_ok());
        prop_assume!(normal.iter().any(|c| c.abs() > 0.1));
        let plane = pga3::plane(normal[0], normal[1], normal[2], d);
        prop_assert!(plane.normalized().is_ok() && plane.inverse().is_ok());
        // The mirror image of the origin is twice as far as the plane.
        let image = pga3::coordinates(&pga3::point([0.0f32; 3]).reflected(&plane)?)?;
        let length = |v: [f32; 3]| v.iter().map(|&c| f64::from(c).powi(2)).sum::<f64>().sqrt();
        let expected = 2.0 * f64::from(d).abs() / length(normal);
        prop_assert!((length(image) - expected).abs() <= 1e-5 * expected);
        // The line through a point as far away is one to turn about.
        let line = pga3::line([d, d * 0.5, 1.0], normal);
        let turn = Motor3::from_plane_angle(&line, 0.5)?;
        let there = pga3::coordinates(&turn.apply(&pga3::point([d, d * 0.5, 1.0])))?;
        prop_assert!(length([there[0] - d, there[1] - d * 0.5, there[2] - 1.0]) <= 1e-5 * f64::from(d.abs()).max(1.0));
    }

    /// What is clearly not of norm 1 is no rotor, whatever is beside it.
    #[test]
    fn norms_are_those_of_rotors(c in prop::array::uniform4(-3.0f32..3.0), far in 10.0f32..1e6) {
        let mut m = Multivector::<Pga3, f32>::zero();
        for (c, blade) in c.into_iter().zip([Blade::SCALAR, Blade::E12, Blade::E13, Blade::E23]) {
            m[blade] = c;
        }
        m[Blade::E14] = far;
        prop_assume!((m.squared_norm() - 1.0).abs() > 0.01);
        prop_assert!(Rotor::new(m).is_err(), "{m}");
    }

    /// Screws about far lines come apart into a line and a translation along it.
    #[test]
    fn screws_come_apart_anywhere(
        through in prop::array::uniform3(-1e6f64..1e6), along in prop::array::uniform3(-1.0..1.0f64), pitch in 0.1..2.0f64,
    ) {
        prop_assume!(along.iter().map(|c| c * c).sum::<f64>() > 0.05);
        let mut screw = pga3::line(through, along);
        for (blade, c) in [Blade::E14, Blade::E24, Blade::E34].into_iter().zip(along) {
            screw[blade] += pitch * c;
        }
        let planes = screw.invariant_decomposition()?;
        prop_assert_eq!(planes.len(), 2);
        let far = size(&screw);
        for plane in &planes {
            prop_assert!((*plane ^ *plane).e1234().abs() <= 1e-14 * far, "{plane} is not simple");
        }
        prop_assert!(distance(&(planes[0] + planes[1]), &screw) <= 1e-14 * far);
        prop_assert!(size(&(planes[0] * planes[1] - planes[1] * planes[0])) <= 1e-13 * far);
    }

    /// The two planes of a rotation of four dimensions, however equal.
    #[test]
    fn nearly_isoclinic_planes_are_exact(turn in any::<Rotor<Cl4, f64>>(), digits in -15.0..0.0f64) {
        let [e1, e2, e3, e4] = Multivector::<Cl4, f64>::generators();
        let bivector = turn.apply(&((e1 ^ e2) + (e3 ^ e4) * (1.0 + 10f64.powf(digits))));
        let planes = bivector.invariant_decomposition()?;
        prop_assert_eq!(planes.len(), 2);
        for plane in &planes {
            prop_assert!(size(&(*plane ^ *plane)) < 1e-13, "{plane} is not simple");
        }
        prop_assert!(distance(&(planes[0] + planes[1]), &bivector) < 1e-14);
    }

    /// Ends, and the same way for a rotor and its negative.
    #[test]
    fn slerp_leads_from_one_to_the_other((r, s) in any_algebra(2..=5).prop_flat_map(|a| (any_rotor::<_, f64>(&a), any_rotor::<_, f64>(&a)))) {
        let (from, to) = (r.as_multivector(), s.as_multivector());
        let scale = 1.0 + size(from).powi(2) * size(to).powi(2);
        match r.slerp(&s, 1.0) {
            Ok(end) => {
                let error = distance(end.as_multivector(), to).min(distance(&-end.as_multivector(), to));
                prop_assert!(error <= 1e-9 * scale, "{error:e} from {from} to {to}");
                prop_assert!(distance(r.slerp(&s, 0.0)?.as_multivector(), from) <= 1e-9 * scale);
                // Halfway to the negative is the same place, where the shorter way is clear.
                let step = s.after(&r.inverse())?;
                if step.as_multivector().scalar_part().abs() > 1e-6 * size(step.as_multivector()) {
                    let (one, other) = (r.slerp(&s, 0.5)?, r.slerp(&Rotor::new(-to)?, 0.5)?);
                    prop_assert_eq!(one, other);
                }
            }
            Err(error) => {
                let undefined = matches!(error, Error::Undefined { operation: "slerp", .. });
                prop_assert!(undefined && may_have_no_logarithm(from.algebra().signature()), "{error} from {from} to {to}");
            }
        }
    }

    #[test]
    fn single_precision_halves_of_half_turns(axis in prop::array::uniform3(-1.0f32..1.0), digits in 0i32..9, by in prop::array::uniform3(-1.0f32..1.0)) {
        prop_assume!(axis.iter().any(|c| c.abs() > 0.1));
        let angle = std::f32::consts::PI - 10f32.powi(-digits);
        let m = Motor3::from_rotation_translation(&Rotor3::from_axis_angle(axis, angle)?, by);
        let half = m.powf(0.5)?;
        let whole = half * half;
        let pairs = whole.as_multivector().coefficients().iter().zip(m.as_multivector().coefficients());
        prop_assert!(pairs.fold(0f32, |largest, (x, y)| largest.max((x - y).abs())) < 1e-4, "{m}");
    }
}

/// A screw of a full turn, put together from quarters, has a logarithm at hand.
#[test]
fn a_full_turn_with_a_translation_has_a_logarithm() -> Result<()> {
    let [e1, e2, _, _] = Multivector::<Pga3, f64>::generators();
    let step = Motor3::translation([0.0, 0.0, 0.25])
        * Rotor::from_plane_angle(&(e1 ^ e2), std::f64::consts::FRAC_PI_2)?;
    let full: Motor3 = [step; 4].into_iter().product();
    let log = full.log()?;
    assert!(size(&log) < 4.0, "{log}");
    assert!(distance(&log.exp()?, full.as_multivector()) < 1e-14);
    let half = full.powf(0.5)?;
    let [x, y, z] = (half * half).displacement()?;
    assert!(x.abs() + y.abs() + (z - 1.0).abs() < 1e-14);
    Ok(())
}

/// Minus a boost has a logarithm where there is a plane left to turn in, and is refused where there is none.
#[test]
fn minus_a_boost_is_refused_only_without_a_plane_to_turn_in() -> Result<()> {
    for (p, q, r, text, exists) in [
        (1, 1, 0, "0.5e12", false),
        (2, 1, 0, "0.5e13", false),
        (3, 1, 0, "0.5e14", true),
        (1, 3, 0, "0.5e12", true),
        (4, 1, 0, "0.5e15", true),
        (1, 0, 1, "0.5e12", false),
        (2, 0, 1, "0.5e13", false),
        (3, 0, 1, "0.5e14", true),
        (4, 0, 1, "0.5e15 + 0.25e25", true),
        // Minus a null rotation is the one kind without a logarithm in space-time.
        (3, 1, 0, "0.5e12 + 0.5e24", false),
    ] {
        let minus = algebra(p, q, r).parse::<f64>(text)?.exp()?.scaled(&-1.0);
        match minus.log() {
            Ok(log) => {
                assert!(exists, "minus exp({text}) of Cl({p},{q},{r}) has the logarithm {log}?");
                assert!(distance(&log.exp()?, &minus) < 1e-12, "{text}");
            }
            Err(error) => assert!(!exists, "Cl({p},{q},{r}), {text}: {error}"),
        }
    }
    Ok(())
}

/// An exponential is never said to have no logarithm: planes that a large rotor has turned until they are nearly null have one, or one that
/// the digits do not suffice for.
#[test]
fn exponentials_of_nearly_null_planes_are_not_said_to_have_none() -> Result<()> {
    for ((p, q), seeds) in [((4, 1), 0..40_u32), ((3, 2), 40..80), ((2, 3), 80..120), ((1, 4), 120..160)] {
        let algebra = algebra(p, q, 0);
        for seed in seeds {
            let mut state = 0x9e37_79b9_u32.wrapping_mul(seed + 1);
            let mut number = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f64::from(state >> 8) / f64::from(1_u32 << 23) - 1.0
            };
            let mut large = algebra.zero::<f64>();
            large.coefficients_mut()[6..16].fill_with(|| 2.0 * number());
            let turn = large.exp()?;
            let (first, second) = (algebra.parse::<f64>("e12")?, algebra.parse::<f64>("e45")?);
            let planes = first.scaled(&(3.0 * number())).plus(&second.scaled(&(3.0 * number())))?;
            let planes = turn.geometric_product(&planes)?.geometric_product(&turn.reverse())?.grade(2);
            // Of the exponential, whose rounding errors may be larger, the rotor next to it.
            let Ok(rotor) = Rotor::new(planes.exp()?) else { continue };
            let rotor = rotor.renormalized()?.into_multivector();
            // Beyond, the nearest rotor is not determined to as many digits.
            if size(&rotor) > 1e3 {
                continue;
            }
            match rotor.log() {
                Ok(log) => {
                    let error = distance(&log.exp()?, &rotor);
                    let far = size(&rotor).max(1.0).powi(2).max(size(&log) / 64.0);
                    assert!(error <= 1e-12 * far, "{error:e}: exp({planes})");
                }
                Err(error) => {
                    assert!(!error.to_string().contains("no bivector has"), "{error}: exp({planes})");
                }
            }
        }
    }
    Ok(())
}

/// Rotors that are renormalized at each step stay rotors, in single precision, too.
#[test]
fn walks_stay_on_the_group() -> Result<()> {
    fn walk<A: TypeLevel>() -> Result<()> {
        let n = A::SIGNATURE.dimension();
        let planes = n * (n - 1) / 2;
        let mut rotor = Rotor::<A, f32>::identity();
        let mut state = 1u32;
        for step in 0..20_000 {
            let mut bivector = Multivector::<A, f32>::zero();
            for c in &mut bivector.coefficients_mut()[n + 1..n + 1 + planes] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *c = (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
            }
            rotor = (Rotor::exp(&bivector)? * rotor).renormalized()?;
            if step % 100 == 0 {
                Rotor::new(rotor.as_multivector().clone())?;
            }
        }
        let m = rotor.as_multivector();
        let rest = m.reverse() * m - 1.0;
        let far = m.coefficients().iter().fold(1.0f32, |far, c| far.max(c.abs()));
        assert!(rest.coefficients().iter().all(|c| c.abs() <= 2e-6 * far), "{rest}");
        Ok(())
    }
    walk::<Cl3>()?;
    walk::<Cl4>()?;
    walk::<Pga3>()
}

/// Beyond five dimensions an even element with reverse(R) R = 1 may map vectors to what is none.
#[test]
fn what_maps_vectors_elsewhere_is_no_rotor() -> Result<()> {
    let six = algebra(6, 0, 0);
    let half = std::f64::consts::FRAC_1_SQRT_2;
    let element = six.scalar(half).plus(&six.pseudoscalar::<f64>().scaled(&half))?;
    assert!((element.squared_norm() - 1.0).abs() < 1e-15);
    assert!(Rotor::new(element.clone()).is_err());
    assert!(element.sandwich(&six.generator(0)?).is_err());
    Ok(())
}
