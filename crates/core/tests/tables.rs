//! The tables of an algebra against the definition of its product.

mod common;

use common::{algebra, any_algebra};
use gradewise_core::{
    Algebra, Cga3, Cl, Cl2, Cl3, Cl4, Cl5, Error, MAX_DIMENSION, Multivector, Pga2, Pga3, Signature, Sta,
    TypeLevel,
};
use proptest::{prelude::*, test_runner::TestRunner};
use std::collections::BTreeSet;

/// The product of two blades by the definition alone: write the generators one after the other, sort by swapping
/// neighbours (each swap changes the sign), replace equal neighbours by their square.
fn product_by_swapping(signature: Signature, left: &[usize], right: &[usize]) -> (Vec<usize>, i8) {
    let mut word: Vec<usize> = left.iter().chain(right).copied().collect();
    let mut sign = 1;
    while let Some(at) = (1..word.len()).find(|&at| word[at - 1] >= word[at]) {
        if word[at - 1] > word[at] {
            word.swap(at - 1, at);
            sign = -sign;
        } else {
            sign *= match word[at] {
                g if g < signature.p as usize => 1,
                g if g < (signature.p + signature.q) as usize => -1,
                _ => 0,
            };
            word.drain(at - 1..=at);
        }
    }
    (word, sign)
}

/// All subsets of the generators as ascending lists, by length and then lexicographically.
fn blades_in_order(n: usize) -> Vec<Vec<usize>> {
    let mut blades: Vec<Vec<usize>> =
        (0..1usize << n).map(|set| (0..n).filter(|g| set >> g & 1 == 1).collect()).collect();
    blades.sort_by_key(|blade| (blade.len(), blade.clone()));
    blades
}

fn check_tables(algebra: &Algebra) {
    let signature = algebra.signature();
    let blades = blades_in_order(algebra.dimension());
    let index = |blade: &[usize]| blades.iter().position(|b| b == blade).expect("a blade");
    let (mut expected, mut paths) = (Vec::new(), BTreeSet::new());
    for (i, left) in blades.iter().enumerate() {
        for (k, right) in blades.iter().enumerate() {
            let (out, sign) = product_by_swapping(signature, left, right);
            assert_eq!(algebra.blade_product(i, k), (index(&blade_set_difference(left, right)), sign));
            if sign != 0 {
                expected.push((i, k, index(&out), sign));
                paths.insert((left.len(), out.len(), right.len()));
            }
        }
    }
    let terms: Vec<_> = algebra
        .terms()
        .iter()
        .map(|t| (usize::from(t.left), usize::from(t.right), usize::from(t.out), t.sign))
        .collect();
    assert_eq!(terms, expected, "{signature}");

    let listed: Vec<_> =
        algebra.paths().iter().map(|p| (p.left.into(), p.out.into(), p.right.into())).collect();
    assert_eq!(listed, paths.into_iter().collect::<Vec<(usize, usize, usize)>>(), "{signature}");
    for term in algebra.terms() {
        let path = algebra.paths()[usize::from(term.path)];
        let grades = [term.left, term.out, term.right].map(|blade| algebra.grades()[usize::from(blade)]);
        assert_eq!(grades, [path.left, path.out, path.right]);
    }
    for (i, blade) in blades.iter().enumerate() {
        let reversed: Vec<usize> = blade.iter().rev().copied().collect();
        assert_eq!(
            algebra.reverse_signs()[i],
            product_by_swapping(Signature::new(8, 0, 0), &reversed, &[]).1
        );
        assert_eq!(algebra.squared_norms()[i], product_by_swapping(signature, &reversed, blade).1);
        assert_eq!(algebra.blade_of_mask(algebra.mask(i)), Some(i));
    }
}

fn blade_set_difference(left: &[usize], right: &[usize]) -> Vec<usize> {
    let (left, right): (BTreeSet<_>, BTreeSet<_>) = (left.iter().collect(), right.iter().collect());
    left.symmetric_difference(&right).map(|&&g| g).collect()
}

#[test]
fn blades_and_signs_are_those_of_the_definition() {
    for p in 0..=5 {
        for q in 0..=5 - p {
            for r in 0..=5 - p - q {
                check_tables(&algebra(p, q, r));
            }
        }
    }
}

#[test]
fn largest_algebra_has_256_blades() {
    let largest = algebra(3, 3, 2);
    assert_eq!(largest.dimension(), MAX_DIMENSION);
    assert_eq!((largest.blade_count(), largest.grade_count()), (256, 9));
    assert_eq!(largest.blade_name(255), "e12345678");
    // A null generator kills the pairs that share it: 3 of 4 survive for each.
    assert_eq!(largest.terms().len(), 4usize.pow(6) * 3usize.pow(2));
}

#[test]
fn counts_of_paths_and_terms() {
    let counts = |signature| {
        let algebra = Algebra::new(signature).expect("a common signature");
        (algebra.paths().len(), algebra.terms().len())
    };
    assert_eq!(counts(Signature::CL2), (10, 16));
    assert_eq!(counts(Signature::CL3), (20, 64));
    assert_eq!(counts(Signature::PGA3), (34, 192));
    assert_eq!(counts(Signature::STA), (35, 256));
    assert_eq!(counts(Signature::CGA3), (56, 1024));
    assert_eq!(counts(Signature::CL5), (56, 1024));
}

#[test]
fn blade_names_follow_the_order() {
    let cl3 = algebra(3, 0, 0);
    let names: Vec<String> = (0..8).map(|blade| cl3.blade_name(blade)).collect();
    assert_eq!(names, ["1", "e1", "e2", "e3", "e12", "e13", "e23", "e123"]);
    assert_eq!(cl3.blades_of_grade(2), 4..7);
    assert!(cl3.blades_of_grade(4).is_empty());
}

#[test]
fn nine_generators_are_refused() {
    let signature = Signature::new(5, 3, 1);
    assert_eq!(Algebra::new(signature), Err(Error::TooManyGenerators { signature }));
    let absurd = Signature::new(255, 255, 255);
    assert_eq!(absurd.blade_count(), usize::MAX);
    assert!(Algebra::new(absurd).is_err());
}

/// The operations of the type-level algebra are those of the run-time one.
fn check_typed<A: TypeLevel>(cases: u32) {
    let blades = A::SIGNATURE.blade_count();
    let coefficients = || prop::collection::vec(-9..=9i64, blades);
    let property = |(a, b): (Vec<i64>, Vec<i64>)| {
        let (x, y) = (Multivector::<A, i64>::from_coefficients(&a)?, Multivector::from_coefficients(&b)?);
        let run_time = Algebra::new(A::SIGNATURE)?;
        let (u, v) = (run_time.multivector(&a)?, run_time.multivector(&b)?);
        macro_rules! agree {
            ($($operation:ident)*) => {$(
                let (typed, dynamic) = (A::into_result(x.$operation(&y))?, u.$operation(&v)?);
                prop_assert_eq!(typed.coefficients(), dynamic.coefficients());
            )*};
        }
        agree!(plus minus geometric_product outer_product regressive_product commutator_product);
        agree!(left_contraction right_contraction inner_product);
        prop_assert_eq!(A::into_result(x.scalar_product(&y))?, u.scalar_product(&v)?);
        prop_assert_eq!(x.squared_norm(), u.squared_norm());
        let (dual, undual) = (x.dual(), x.undual());
        let (expected_dual, expected_undual) = (u.dual(), u.undual());
        prop_assert_eq!(dual.coefficients(), expected_dual.coefficients());
        prop_assert_eq!(undual.coefficients(), expected_undual.coefficients());
        let operators = &x * &y + &x - &y * 3;
        let methods = u.geometric_product(&v)?.plus(&u)?.minus(&v.scaled(&3))?;
        prop_assert_eq!(operators.coefficients(), methods.coefficients());
        Ok(())
    };
    TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() })
        .run(&(coefficients(), coefficients()), property)
        .unwrap_or_else(|error| panic!("{}: {error}", A::SIGNATURE));
}

#[test]
fn typed_algebras_agree_with_run_time_ones() {
    check_typed::<Cl<0, 0, 0>>(32);
    check_typed::<Cl<0, 0, 1>>(32);
    check_typed::<Cl2>(32);
    check_typed::<Cl3>(32);
    check_typed::<Cl4>(32);
    check_typed::<Cl5>(32);
    check_typed::<Sta>(32);
    check_typed::<Pga2>(32);
    check_typed::<Pga3>(32);
    check_typed::<Cga3>(32);
    check_typed::<Cl<2, 2, 2>>(16);
    check_typed::<Cl<1, 6, 0>>(4);
    check_typed::<Cl<3, 2, 3>>(2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The signature survives its text form, with and without the name.
    #[test]
    fn signatures_round_trip(algebra in any_algebra(8)) {
        let signature = algebra.signature();
        prop_assert_eq!(signature.to_string().parse(), Ok(signature));
        prop_assert_eq!(format!("{},{},{}", signature.p, signature.q, signature.r).parse(), Ok(signature));
    }
}
