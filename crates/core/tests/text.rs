//! Multivectors as text, there and back.

mod common;

use common::{algebra, exact, rational};
use gradewise_core::{Algebra, Cl3, Error, Multivector, Result, Scalar, Signature};
use num_rational::Ratio;
use proptest::{collection::vec, prelude::*};

type Space<T> = Multivector<Cl3, T>;

fn shown<T: Scalar>(coefficients: [T; 8]) -> String {
    Space::new(coefficients).to_string()
}

#[test]
fn display_reads_like_a_sum_of_blades() {
    assert_eq!(shown([1, 2, 0, 0, -1, 0, 0, 0]), "1 + 2e1 − e12");
    assert_eq!(shown([0; 8]), "0");
    assert_eq!(shown([-1, 0, 0, 0, 0, 0, 0, 0]), "−1");
    assert_eq!(shown([0, -1, 1, 0, 0, 0, 0, -7]), "−e1 + e2 − 7e123");
    assert_eq!(shown([0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 2.25, 0.0]), "0.5 + e3 + 2.25e23");
}

#[test]
fn exponents_and_fractions_stand_in_parentheses() {
    assert_eq!(shown([1e-7, 0.0, 0.0, 0.0, 1e300, 0.0, 0.0, -2.5e-9]), "(1e-7) + (1e300)e12 − (2.5e-9)e123");
    assert_eq!(shown([0.0, f64::NEG_INFINITY, f64::NAN, 0.0, 0.0, 0.0, 0.0, 0.0]), "−(inf)e1 + (NaN)e2");
    let [half, zero] = [Ratio::new(-1i64, 2), Ratio::from_integer(0)];
    assert_eq!(shown([half, half, -half * 4, zero, zero, zero, zero, zero]), "−(1/2) − (1/2)e1 + 2e2");
}

#[test]
fn precision_applies_to_every_coefficient() {
    let x = Space::new([1.0, 0.0, 0.0, 0.0, -2.0 / 3.0, 0.0, 0.0, 1.0]);
    assert_eq!(format!("{x:.2}"), "1.00 − 0.67e12 + 1.00e123");
}

#[test]
fn the_extremes_of_integers_and_floats_survive() {
    for value in [i64::MIN, i64::MAX] {
        let x = Space::new([value, 0, 0, 0, value, 0, 0, value]);
        assert_eq!(x.to_string().parse(), Ok(x));
    }
    for value in [f64::MIN_POSITIVE, f64::MAX, f64::EPSILON, 5e-324, f64::INFINITY, 1e16, 1e15, 1e-5, 9.99e-6]
    {
        let x = Space::new([value, 0.0, -value, 0.0, value, 0.0, 0.0, -value]);
        assert_eq!(x.to_string().parse(), Ok(x));
    }
}

#[test]
fn reading_is_lenient_about_form() -> Result<()> {
    let expected = Space::new([1, 2, 0, 0, -1, 0, 0, 0]);
    for text in [
        "1 + 2e1 − e12",
        "1+2e1-e12",
        " -e12 +2 e1+ 1 ",
        "1 + 2e1 + e21",
        "(1) + (2)e1 + (-1)e12",
        "+1 − (−2)e1 − (1)e12 + 0e123",
    ] {
        assert_eq!(text.parse::<Space<i64>>()?, expected, "{text}");
    }
    assert_eq!("e312".parse::<Space<i64>>()?, Space::pseudoscalar());
    assert_eq!("(1e1)e1".parse::<Space<f64>>()?, Space::vector([10.0, 0.0, 0.0]));
    assert_eq!("1e1".parse::<Space<f64>>()?, Space::vector([1.0, 0.0, 0.0]));
    Ok(())
}

#[test]
fn errors_say_where_and_why() {
    for (text, at, why) in [
        ("", 1, "expected a number or a blade"),
        ("1 + ", 5, "expected a number or a blade"),
        ("1 2", 3, "expected `+`, `-` or the end"),
        ("e1 + 2x", 7, "expected `+`, `-` or the end"),
        ("e1 + 3e4", 8, "no generator 4"),
        ("e0", 2, "no generator 0"),
        ("e11", 3, "twice"),
        ("1e", 3, "needs generators"),
        ("1e-7", 3, "exponents need parentheses"),
        ("2.5", 1, "`2.5` is not a coefficient"),
        ("(1/2)", 1, "`1/2` is not a coefficient"),
        ("e2 − (1", 6, "not closed"),
        ("(--1)", 1, "not a coefficient"),
        ("e1 + 2e1", 6, "already"),
        ("e12 + e21", 7, "already"),
        ("9223372036854775808", 1, "not a coefficient"),
    ] {
        match text.parse::<Space<i64>>() {
            Err(Error::InvalidMultivector { position, reason, .. }) => {
                assert!(position == at && reason.contains(why), "`{text}`: at {position}, {reason}");
            }
            other => panic!("`{text}` gave {other:?}"),
        }
    }
    let message = algebra(2, 0, 0).parse::<f64>("e3").expect_err("no e3").to_string();
    assert!(message.contains("there is no generator 3; Cl(2,0,0) has 2"), "{message}");
}

/// Any float that is a number, of any size.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("a number", |x| !x.is_nan()), -10.0..10.0f64, Just(0.0), Just(1.0)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn integers_round_trip((algebra, [x]) in exact(6)) {
        prop_assert_eq!(algebra.parse(&x.to_string()), Ok(x));
    }

    #[test]
    fn spaces_and_ascii_minus_do_not_matter((algebra, [x]) in exact(5)) {
        let text = x.to_string();
        prop_assert_eq!(algebra.parse(&text.replace('−', "-").replace(' ', "")), Ok(x));
    }

    #[test]
    fn rationals_round_trip((algebra, [x]) in exact(4), divisor in 1..50i128) {
        let x = rational(&x).scaled(&Ratio::new(1, divisor));
        prop_assert_eq!(algebra.parse(&x.to_string()), Ok(x));
    }

    #[test]
    fn floats_round_trip(coefficients in vec(number(), 8)) {
        let x = Space::<f64>::from_coefficients(&coefficients)?;
        prop_assert_eq!(x.to_string().parse(), Ok(x));
        let single: Vec<f32> = coefficients.iter().map(|&c| c as f32).collect();
        let x = Space::<f32>::from_coefficients(&single)?;
        prop_assert_eq!(x.to_string().parse(), Ok(x));
    }

    /// Anything at all is either read or refused with a position inside the text; what is read is written and read
    /// again as the same.
    #[test]
    fn arbitrary_text_never_panics(text in "[-+−0-9e().1/2 a-z]{0,24}|\\PC{0,12}") {
        let algebra = Algebra::new(Signature::PGA3)?;
        let length = text.chars().count();
        macro_rules! check {
            ($($scalar:ty)*) => {$(
                match algebra.parse::<$scalar>(&text) {
                    Ok(x) if x.coefficients().iter().all(|c| c == c) => {
                        prop_assert_eq!(algebra.parse(&x.to_string()), Ok(x))
                    }
                    Ok(_) => {}
                    Err(Error::InvalidMultivector { position, .. }) => prop_assert!((1..=length + 1).contains(&position)),
                    Err(other) => prop_assert!(false, "{}", other),
                }
            )*};
        }
        check!(i8 i64 f32 f64 Ratio<i64>);
    }
}
