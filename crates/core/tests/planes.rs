//! Exponentials, logarithms and decompositions of any bivector in any signature of up to five generators: rotations,
//! boosts and translations, alone and two at a time.

mod common;

use common::{Float, algebra, assert_close};
use gradewise_core::{Algebra, Cl4, Error, Multivector, Result, Rotor, Sta};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use std::f64::consts::{FRAC_PI_2, PI};

/// exp by its power series, of a sixteenth of x, squared four times.
fn exp_by_series(x: &Float) -> Result<Float> {
    let x = x.scaled(&(1.0 / 16.0));
    let mut term = x.algebra().scalar(1.0);
    let mut sum = term.clone();
    for k in 1..40 {
        term = term.geometric_product(&x)?.scaled(&(1.0 / f64::from(k)));
        sum = sum.plus(&term)?;
    }
    for _ in 0..4 {
        sum = sum.geometric_product(&sum)?;
    }
    Ok(sum)
}

fn bivectors(algebra: &Algebra, size: f64) -> impl Strategy<Value = Float> + use<> {
    let algebra = algebra.clone();
    let planes = algebra.blades_of_grade(2);
    // Some components are exactly zero, so that simple and isoclinic bivectors are among them.
    let component = prop_oneof![3 => -size..size, 1 => Just(0.0), 1 => Just(size), 1 => Just(-size)];
    vec(component, planes.len()).prop_map(move |c| {
        let mut bivector = algebra.zero();
        bivector.coefficients_mut()[planes.clone()].copy_from_slice(&c);
        bivector
    })
}

/// The same cases at every run: how well a logarithm is determined depends on how close a rotor comes to half a turn, so
/// that no tolerance fits whatever may be drawn.
fn fixed_random_numbers() -> TestRng {
    TestRng::deterministic_rng(RngAlgorithm::ChaCha)
}

/// Checks `law` on bivectors with components up to `size` of every signature with `dimensions` generators.
fn in_every_signature(
    dimensions: std::ops::RangeInclusive<u8>,
    size: f64,
    law: impl Fn(Float) -> std::result::Result<(), TestCaseError>,
) {
    for n in dimensions {
        for p in 0..=n {
            for q in 0..=n - p {
                let algebra = algebra(p, q, n - p - q);
                let config = ProptestConfig { cases: 256, ..ProptestConfig::default() };
                TestRunner::new_with_rng(config, fixed_random_numbers())
                    .run(&bivectors(&algebra, size), &law)
                    .unwrap_or_else(|error| panic!("{algebra:?}: {error}"));
            }
        }
    }
}

fn norm(x: &Float) -> f64 {
    x.coefficients().iter().map(|c| c * c).sum::<f64>().sqrt()
}

#[test]
fn exp_is_its_power_series_everywhere() {
    for size in [0.01, 1.0, 4.0] {
        in_every_signature(2..=5, size, |b| {
            let (exp, series) = (b.exp()?, exp_by_series(&b)?);
            let error = norm(&exp.minus(&series)?) / norm(&series);
            prop_assert!(error < 1e-13, "{b}: {error:e}");
            Ok(())
        });
    }
}

#[test]
fn exp_is_its_power_series_beyond_five_dimensions() {
    for algebra in [algebra(6, 0, 0), algebra(3, 3, 0), algebra(5, 1, 2), algebra(8, 0, 0)] {
        TestRunner::new_with_rng(ProptestConfig::with_cases(8), fixed_random_numbers())
            .run(&bivectors(&algebra, 1.0), |b| {
                let (exp, series) = (b.exp()?, exp_by_series(&b)?);
                prop_assert!(norm(&exp.minus(&series)?) / norm(&series) < 1e-13);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{algebra:?}: {error}"));
    }
}

/// Of bivectors clear of half a turn, the logarithm is the bivector itself.
#[test]
fn log_takes_exp_back_everywhere() {
    for size in [1e-9, 0.01, 0.3] {
        in_every_signature(2..=5, size, |b| {
            let back = b.exp()?.log()?;
            let error = norm(&back.minus(&b)?);
            prop_assert!(error <= 1e-14 * norm(&b), "{b}: {error:e} of {:e}", norm(&b));
            Ok(())
        });
    }
}

/// Larger ones may turn by more than half; the logarithm is then another, with the same exponential.
#[test]
fn exp_takes_log_back_everywhere() {
    in_every_signature(2..=5, 2.5, |b| {
        let rotor = b.exp()?;
        match rotor.log() {
            Ok(log) => {
                // Boosts stretch, and what they stretch is lost in rounding.
                let error = norm(&log.exp()?.minus(&rotor)?) / norm(&rotor).powi(2);
                prop_assert!(error < 1e-10, "{b}: {error:e}");
            }
            Err(error) => {
                let undefined = matches!(error, Error::Undefined { operation: "log", .. });
                prop_assert!(undefined, "{}", error);
                // Only where there are boosts or translations; rotations alone all have logarithms.
                let signature = b.algebra().signature();
                prop_assert!(signature.r > 0 || signature.p * signature.q > 0, "{b}: {error}");
            }
        }
        Ok(())
    });
}

/// Commuting simple planes whose sum is B, and exp B is the product of their exponentials in either order.
#[test]
fn bivectors_are_sums_of_commuting_planes() {
    in_every_signature(2..=5, 1.0, |b| {
        let planes = match b.invariant_decomposition() {
            Ok(planes) => planes,
            Err(error) => {
                let signature = b.algebra().signature();
                prop_assert!(signature.r > 0 || signature.p.min(signature.q) > 1, "{b}: {error}");
                return Ok(());
            }
        };
        prop_assert!(planes.len() <= 2);
        let mut sum = b.algebra().zero();
        let (mut forth, mut back) = (b.algebra().scalar(1.0), b.algebra().scalar(1.0));
        for plane in &planes {
            sum = sum.plus(plane)?;
            let square = plane.geometric_product(plane)?;
            prop_assert!(norm(&square.grade(4)) < 1e-7 * norm(&b).powi(2));
            forth = forth.geometric_product(&plane.exp()?)?;
            back = plane.exp()?.geometric_product(&back)?;
        }
        assert_close(&sum, &b, 1e-7);
        assert_close(&forth, &b.exp()?, 1e-6);
        assert_close(&back, &b.exp()?, 1e-6);
        Ok(())
    });
}

/// Two rotations that are far from equally fast come apart with all digits.
#[test]
fn well_separated_planes_are_exact() -> Result<()> {
    let four = algebra(4, 0, 0);
    let turn = four.parse::<f64>("e13 + 0.5e24")?.exp()?;
    let [first, second] = ["2e12", "0.5e34"].map(|plane| four.parse::<f64>(plane));
    let (first, second) = (turn.sandwich(&first?)?, turn.sandwich(&second?)?);
    let planes = first.plus(&second)?.invariant_decomposition()?;
    assert_close(&planes[0], &first, 1e-14);
    assert_close(&planes[1], &second, 1e-14);
    Ok(())
}

#[test]
fn isoclinic_rotations_have_planes_and_logarithms() -> Result<()> {
    let [e1, e2, e3, e4] = Multivector::<Cl4, f64>::generators();
    let isoclinic = (e1 ^ e2) + (e3 ^ e4);
    let planes = isoclinic.invariant_decomposition()?;
    assert_eq!(planes.len(), 2);
    assert_eq!(planes[0] + planes[1], isoclinic);
    assert_eq!(planes[0] * planes[0], (-1.0).into());
    // A quarter of a turn in both planes is the pseudoscalar; half a turn is −1 in both.
    let quarter = (isoclinic * FRAC_PI_2).exp()?;
    assert_close(&quarter, &(e1 ^ e2 ^ e3 ^ e4), 1e-15);
    assert_close(&quarter.log()?.exp()?, &quarter, 1e-15);
    let exact = (e1 ^ e2 ^ e3 ^ e4).log()?;
    assert_close(&exact.exp()?, &(e1 ^ e2 ^ e3 ^ e4), 1e-15);
    // The left-isoclinic part of the rotor is −1 while the other is some rotation.
    let mixed = ((e1 ^ e2) * 2.0 + (e3 ^ e4) * (PI - 2.0)).exp()?;
    assert_close(&mixed.log()?.exp()?, &mixed, 1e-14);
    Ok(())
}

#[test]
fn a_boost_along_the_axis_of_a_rotation_is_one_exponential() -> Result<()> {
    let [t, x, y, z] = Multivector::<Sta, f64>::generators();
    let (boost, turn) = ((z ^ t) * 0.75, (x ^ y) * 1.5);
    let motion = boost + turn;
    assert_close(&motion.exp()?, &(boost.exp()? * turn.exp()?), 1e-15);
    let mut planes = motion.invariant_decomposition()?;
    planes.sort_by(|a, b| a.e14().abs().total_cmp(&b.e14().abs()));
    assert_close(&planes[0], &turn, 1e-15);
    let half = Rotor::new(motion.exp()?)?.powf(0.5)?;
    assert_close(&(half * half).into(), &motion.exp()?, 1e-15);
    Ok(())
}
