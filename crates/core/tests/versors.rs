//! Versors: inverses, norms, sandwiches and reflections, exactly.

mod common;

use common::{Rational, algebra, exact, invertible_vectors, product, rational};
use gradewise_core::{Cl3, Error, Multivector, Result};
use num_rational::Ratio;
use proptest::prelude::*;

/// An algebra, one to three invertible vectors in it, and two integer multivectors.
fn versor_and_operands() -> impl Strategy<Value = (Vec<Rational>, Rational, Rational)> {
    (invertible_vectors(4, 1..=3), exact::<2>(4)).prop_map(|((algebra, factors), (_, operands))| {
        // The operands' coefficients, repeated or cut to fit the versor's algebra.
        let [x, y] = operands.map(|operand| {
            let cycle = operand.coefficients().iter().cycle().copied();
            let c: Vec<i64> = cycle.take(algebra.blade_count()).collect();
            rational(&algebra.multivector(&c).expect("one per blade"))
        });
        (factors, x, y)
    })
}

/// Whether some y ≠ 0 has x y = 0: elimination on the matrix of y ↦ x y.
fn is_singular(x: &Rational) -> bool {
    let algebra = x.algebra();
    let n = algebra.blade_count();
    let mut rows: Vec<Vec<Ratio<i128>>> = (0..n)
        .map(|blade| {
            let y = Multivector::blade_in(algebra, blade, Ratio::from_integer(1)).expect("a blade");
            x.geometric_product(&y).expect("one algebra").into_coefficients()
        })
        .collect();
    for column in 0..n {
        let Some(pivot) = (column..n).find(|&row| rows[row][column] != Ratio::from_integer(0)) else {
            return true;
        };
        rows.swap(column, pivot);
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot = &above[column];
        for row in below {
            let factor = row[column] / pivot[column];
            for (entry, &above) in row.iter_mut().zip(pivot).skip(column) {
                *entry -= factor * above;
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn inverse_of_a_versor_is_two_sided((algebra, factors) in invertible_vectors(4, 1..=4)) {
        let v = product(&algebra, &factors)?;
        let one = algebra.scalar(Ratio::from_integer(1));
        prop_assert_eq!(&v.geometric_product(&v.inverse()?)?, &one);
        prop_assert_eq!(&v.inverse()?.geometric_product(&v)?, &one);
    }

    /// Whatever has an inverse has the one that the definition asks for, exactly.
    #[test]
    fn inverse_of_anything_is_two_sided((algebra, [a]) in exact(4)) {
        let x = rational(&a);
        let one = algebra.scalar(Ratio::from_integer(1));
        match x.inverse() {
            Ok(inverse) => {
                prop_assert_eq!(&x.geometric_product(&inverse)?, &one);
                prop_assert_eq!(&inverse.geometric_product(&x)?, &one);
                prop_assert_eq!(inverse.inverse()?, x);
            }
            // The determinant is zero, so that multiplication by x loses something: its matrix is singular.
            Err(error) => {
                let undefined = matches!(error, Error::Undefined { operation: "inverse", .. });
                prop_assert!(undefined);
                prop_assert!(is_singular(&x), "{x} has no inverse but a regular matrix");
            }
        }
    }

    #[test]
    fn inverse_in_floats_is_as_good_as_the_element_allows((algebra, [a]) in exact::<1>(5)) {
        let c: Vec<f64> = a.coefficients().iter().map(|&c| c as f64).collect();
        let x = algebra.multivector(&c)?;
        if let Ok(inverse) = x.inverse() {
            let norm = |x: &Multivector<_, f64>| x.coefficients().iter().map(|c| c * c).sum::<f64>().sqrt();
            let rest = x.geometric_product(&inverse)?.minus(&algebra.scalar(1.0))?;
            prop_assert!(norm(&rest) <= 1e-14 * norm(&x) * norm(&inverse), "{rest}");
        }
    }

    /// q(u v) = q(u) q(v) for versors.
    #[test]
    fn norms_of_versors_multiply((algebra, factors) in invertible_vectors(5, 2..=5)) {
        let v = product(&algebra, &factors)?;
        let norm: Ratio<i128> = factors.iter().map(Rational::squared_norm).product();
        prop_assert_eq!(v.squared_norm(), norm);
        let (head, tail) = factors.split_at(factors.len() / 2);
        let (u, w) = (product(&algebra, head)?, product(&algebra, tail)?);
        prop_assert_eq!(v.squared_norm(), u.squared_norm() * w.squared_norm());
    }

    #[test]
    fn sandwich_preserves_grade_and_norm((factors, x, _) in versor_and_operands()) {
        let v = product(x.algebra(), &factors)?;
        let moved = v.sandwich(&x)?;
        prop_assert_eq!(moved.squared_norm(), x.squared_norm());
        for grade in 0..=x.algebra().dimension() {
            // The raw product, before anything is projected away.
            let part = x.grade(grade);
            let acted = if factors.len() % 2 == 0 { part.clone() } else { part.involution() };
            let raw = v.geometric_product(&acted)?.geometric_product(&v.inverse()?)?;
            prop_assert_eq!(&raw, &moved.grade(grade));
            prop_assert_eq!(&raw, &v.sandwich(&part)?);
        }
    }

    #[test]
    fn sandwich_is_an_automorphism((factors, x, y) in versor_and_operands()) {
        let v = product(x.algebra(), &factors)?;
        let act = |x: &Rational| v.sandwich(x);
        prop_assert_eq!(act(&x.geometric_product(&y)?)?, act(&x)?.geometric_product(&act(&y)?)?);
        prop_assert_eq!(act(&x.outer_product(&y)?)?, act(&x)?.outer_product(&act(&y)?)?);
        prop_assert_eq!(act(&x.reverse())?, act(&x)?.reverse());
        prop_assert_eq!(v.inverse()?.sandwich(&act(&x)?)?, x);
    }

    #[test]
    fn sandwiches_compose((factors, x, _) in versor_and_operands()) {
        let v = product(x.algebra(), &factors)?;
        let one_by_one = factors.iter().rev().try_fold(x.clone(), |x, factor| factor.sandwich(&x))?;
        prop_assert_eq!(v.sandwich(&x)?, one_by_one);
    }

    /// x ↦ x − 2 (x·n / n·n) n on vectors.
    #[test]
    fn reflections_turn_the_normal_around((factors, x, _) in versor_and_operands()) {
        let (n, x) = (&factors[0], x.grade(1));
        prop_assert_eq!(n.reflected(n)?, -n);
        let twice = Ratio::from_integer(2) * x.scalar_product(n)? / n.squared_norm();
        prop_assert_eq!(x.reflected(n)?, x.minus(&n.scaled(&twice))?);
        prop_assert_eq!(x.reflected(n)?.reflected(n)?, x);
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
fn null_and_mixed_elements_are_refused() -> Result<()> {
    let spacetime = algebra(1, 1, 0);
    assert_undefined(spacetime.parse::<i64>("e1 + e2")?.inverse(), "null");
    assert_undefined(spacetime.parse::<f64>("0.1e1 + 0.1e2")?.inverse(), "null");
    assert_undefined(spacetime.zero::<f64>().inverse(), "null");
    assert_undefined(algebra(0, 0, 1).parse::<f64>("e1")?.inverse(), "null");
    assert_undefined(algebra(3, 0, 0).parse::<i64>("1 + e1")?.inverse(), "divides zero");
    assert_undefined(algebra(3, 0, 0).parse::<f64>("0.1 + 0.1e1")?.inverse(), "divides zero");
    assert_undefined(algebra(3, 0, 0).parse::<f64>("(NaN)e1 + e2")?.inverse(), "not finite");
    assert_undefined(algebra(2, 0, 0).parse::<i64>("1 + 2e1")?.inverse(), "fractions");
    // 1 + 2e1234 is even and has an inverse, but mixes grades.
    let even = algebra(5, 0, 0).parse::<f64>("1 + 2e1234")?;
    assert!(even.inverse().is_ok());
    assert_undefined(even.sandwich(&even), "not a versor");
    let space = algebra(3, 0, 0);
    assert_undefined(space.parse::<i64>("e12")?.reflected(&space.parse("e1 + e12")?), "normal");
    // 1 + e123 has the inverse (1 − e123) / 2, but is neither even nor odd.
    let mixed = space.parse::<f64>("1 + e123")?;
    assert!(mixed.inverse().is_ok());
    assert_undefined(mixed.sandwich(&mixed), "even and odd");
    Ok(())
}

#[test]
fn integers_are_inverted_only_without_fractions() -> Result<()> {
    let [e1, e2, _] = Multivector::<Cl3, i64>::generators();
    assert_eq!((e1 * e2).inverse()?, e2 * e1);
    assert_undefined((2 * e1).inverse(), "fractions");
    // 2e1 + 2e2 has the square 8: reflection needs eighths.
    assert_undefined(e1.reflected(&(2 * e1 + 2 * e2)), "fractions");
    Ok(())
}

#[test]
fn normalized_refuses_what_has_no_unit() -> Result<()> {
    let spacetime = algebra(1, 3, 0);
    assert_undefined(spacetime.parse::<f64>("e1 + e2")?.normalized(), "norm is zero");
    assert_undefined(spacetime.parse::<f64>("(NaN)e1")?.normalized(), "not finite");
    assert_undefined(spacetime.parse::<f64>("(inf)e1")?.normalized(), "not finite");
    let unit = spacetime.parse::<f64>("3e2 + 4e3")?.normalized()?;
    assert!((unit.squared_norm() + 1.0).abs() < 1e-15);
    Ok(())
}
