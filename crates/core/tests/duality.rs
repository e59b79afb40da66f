//! Duality and the regressive product, exactly, over random signatures: degenerate ones lose nothing.

mod common;

use common::{algebra, exact};
use gradewise_core::Result;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn undual_takes_dual_back((_, [a]) in exact(6)) {
        prop_assert_eq!(&a.dual().undual(), &a);
        prop_assert_eq!(&a.undual().dual(), &a);
    }

    /// dual(dual a) = (−1)^(k(n−k)) a for grade k.
    #[test]
    fn dual_twice_is_a_sign((algebra, [a]) in exact(6)) {
        let n = algebra.dimension();
        for k in 0..=n {
            let part = a.grade(k);
            let expected = if k * (n - k) % 2 == 0 { part.clone() } else { -&part };
            prop_assert_eq!(part.dual().dual(), expected);
        }
    }

    /// de Morgan: each product is the other one seen through the dual.
    #[test]
    fn dual_exchanges_outer_and_regressive_products((_, [a, b]) in exact(5)) {
        prop_assert_eq!(a.regressive_product(&b)?.dual(), a.dual().outer_product(&b.dual())?);
        prop_assert_eq!(a.outer_product(&b)?.dual(), a.dual().regressive_product(&b.dual())?);
        prop_assert_eq!(a.outer_product(&b)?.undual(), a.undual().regressive_product(&b.undual())?);
    }

    #[test]
    fn regressive_product_is_associative_with_unit_pseudoscalar((algebra, [a, b, c]) in exact(5)) {
        prop_assert_eq!(
            a.regressive_product(&b)?.regressive_product(&c)?,
            a.regressive_product(&b.regressive_product(&c)?)?
        );
        prop_assert_eq!(&algebra.pseudoscalar().regressive_product(&a)?, &a);
        prop_assert_eq!(&a.regressive_product(&algebra.pseudoscalar())?, &a);
    }

    #[test]
    fn regressive_product_adds_codimensions((algebra, [a, b]) in exact(5)) {
        let n = algebra.dimension();
        for j in a.grades() {
            for k in b.grades() {
                let meet = a.grade(j).regressive_product(&b.grade(k))?;
                prop_assert!(meet.grades().iter().all(|&g| g + n == j + k));
            }
        }
    }

    /// x ∧ ⋆y = (x̃ ∗ y) I grade by grade.
    #[test]
    fn hodge_star_measures((algebra, [a, b]) in exact(5)) {
        for k in 0..=algebra.dimension() {
            let (x, y) = (a.grade(k), b.grade(k));
            let expected = algebra.pseudoscalar().scaled(&x.reverse().scalar_product(&y)?);
            prop_assert_eq!(x.outer_product(&y.hodge_star())?, expected);
        }
    }

    /// dual is metric-free: signatures of one dimension agree.
    #[test]
    fn dual_ignores_the_metric((algebra_of_a, [a, b]) in exact(5)) {
        let euclidean = algebra(algebra_of_a.dimension() as u8, 0, 0);
        let (u, v) = (euclidean.multivector(a.coefficients())?, euclidean.multivector(b.coefficients())?);
        prop_assert_eq!(a.dual().into_coefficients(), u.dual().into_coefficients());
        prop_assert_eq!(
            a.regressive_product(&b)?.into_coefficients(),
            u.regressive_product(&v)?.into_coefficients()
        );
        prop_assert_eq!(u.dual(), u.hodge_star());
    }
}

#[test]
fn every_blade_and_its_dual_span_the_pseudoscalar() -> Result<()> {
    for algebra in [algebra(3, 0, 1), algebra(2, 2, 1), algebra(1, 3, 0), algebra(0, 0, 3)] {
        for blade in 0..algebra.blade_count() {
            let blade = gradewise_core::Multivector::blade_in(&algebra, blade, 1)?;
            assert_eq!(blade.outer_product(&blade.dual())?, algebra.pseudoscalar());
            assert_eq!(blade.undual().outer_product(&blade)?, algebra.pseudoscalar());
        }
    }
    Ok(())
}
