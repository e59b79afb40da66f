//! The laws of the products and involutions, exactly, over random signatures.

mod common;

use common::{Exact, algebra, exact};
use gradewise_core::{Error, Result, Signature};
use proptest::prelude::*;

fn gp(a: &Exact, b: &Exact) -> Result<Exact> {
    a.geometric_product(b)
}

/// Σ over grades j of a and k of b of ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩ at the grade `out(j, k)` names: how the literature defines products.
fn by_grades(a: &Exact, b: &Exact, out: impl Fn(usize, usize) -> Option<usize>) -> Result<Exact> {
    let mut sum = a.algebra().zero();
    for j in a.grades() {
        for k in b.grades() {
            if let Some(grade) = out(j, k) {
                sum = sum.plus(&gp(&a.grade(j), &b.grade(k))?.grade(grade))?;
            }
        }
    }
    Ok(sum)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn geometric_product_is_associative((_, [a, b, c]) in exact(5)) {
        prop_assert_eq!(gp(&gp(&a, &b)?, &c)?, gp(&a, &gp(&b, &c)?)?);
    }

    #[test]
    fn products_distribute_over_sums((_, [a, b, c]) in exact(4)) {
        let sum = b.plus(&c)?;
        macro_rules! distributes {
            ($($product:ident)*) => {$(
                prop_assert_eq!(a.$product(&sum)?, a.$product(&b)?.plus(&a.$product(&c)?)?);
                prop_assert_eq!(sum.$product(&a)?, b.$product(&a)?.plus(&c.$product(&a)?)?);
            )*};
        }
        distributes!(geometric_product outer_product left_contraction right_contraction inner_product);
        distributes!(regressive_product commutator_product);
    }

    #[test]
    fn one_is_the_unit((algebra, [a]) in exact(5)) {
        let one = algebra.scalar(1);
        prop_assert_eq!(&gp(&one, &a)?, &a);
        prop_assert_eq!(&gp(&a, &one)?, &a);
        prop_assert_eq!(&one.outer_product(&a)?, &a);
        prop_assert_eq!(one.left_contraction(&a)?, a);
    }

    /// a² = q(a) for vectors, with q written out from the signature.
    #[test]
    fn vectors_square_to_the_quadratic_form((algebra, [a]) in exact(6)) {
        let Signature { p, q, .. } = algebra.signature();
        let (p, q) = (usize::from(p), usize::from(q));
        let a = a.grade(1);
        let form: i64 = a.vector_part().iter().enumerate()
            .map(|(g, x)| x * x * if g < p { 1 } else if g < p + q { -1 } else { 0 })
            .sum();
        prop_assert_eq!(gp(&a, &a)?, algebra.scalar(form));
    }

    #[test]
    fn reverse_and_conjugate_turn_products_around((_, [a, b]) in exact(5)) {
        prop_assert_eq!(gp(&a, &b)?.reverse(), gp(&b.reverse(), &a.reverse())?);
        prop_assert_eq!(gp(&a, &b)?.conjugate(), gp(&b.conjugate(), &a.conjugate())?);
        prop_assert_eq!(a.reverse().reverse(), a.clone());
        prop_assert_eq!(a.conjugate().conjugate(), a.clone());
        prop_assert_eq!(a.reverse().involution(), a.conjugate());
    }

    #[test]
    fn involution_keeps_products((_, [a, b]) in exact(5)) {
        prop_assert_eq!(gp(&a, &b)?.involution(), gp(&a.involution(), &b.involution())?);
        prop_assert_eq!(a.involution().involution(), a.clone());
        prop_assert_eq!(a.involution(), a.even_part().minus(&a.odd_part())?);
    }

    /// The reverse of a product of vectors is the product in the opposite order.
    #[test]
    fn reverse_reverses_vectors((_, [a, b, c]) in exact(5)) {
        let (a, b, c) = (a.grade(1), b.grade(1), c.grade(1));
        prop_assert_eq!(gp(&gp(&a, &b)?, &c)?.reverse(), gp(&gp(&c, &b)?, &a)?);
    }

    #[test]
    fn a_multivector_is_the_sum_of_its_grades((algebra, [a]) in exact(6)) {
        let mut sum = algebra.zero();
        for grade in 0..=algebra.dimension() {
            let part = a.grade(grade);
            prop_assert!(part.grades().iter().all(|&g| g == grade));
            sum = sum.plus(&part)?;
        }
        prop_assert_eq!(&sum, &a);
        prop_assert_eq!(a.even_part().plus(&a.odd_part())?, a.clone());
        prop_assert!(a.grade(algebra.dimension() + 1).is_zero());
    }

    /// ⟨a⟩ⱼ⟨b⟩ₖ has the grades |j−k|, |j−k|+2, …, j+k only; so even elements form a subalgebra.
    #[test]
    fn products_of_grades_have_few_grades((_, [a, b]) in exact(5)) {
        for j in a.grades() {
            for k in b.grades() {
                let product = gp(&a.grade(j), &b.grade(k))?;
                for grade in product.grades() {
                    prop_assert!((j.abs_diff(k)..=j + k).contains(&grade) && (j + k - grade) % 2 == 0);
                }
            }
        }
        prop_assert!(gp(&a.even_part(), &b.even_part())?.odd_part().is_zero());
        prop_assert!(gp(&a.odd_part(), &b.odd_part())?.odd_part().is_zero());
    }

    #[test]
    fn products_are_grade_parts_of_the_geometric_product((_, [a, b]) in exact(5)) {
        prop_assert_eq!(a.outer_product(&b)?, by_grades(&a, &b, |j, k| Some(j + k))?);
        prop_assert_eq!(a.left_contraction(&b)?, by_grades(&a, &b, |j, k| k.checked_sub(j))?);
        prop_assert_eq!(a.right_contraction(&b)?, by_grades(&a, &b, |j, k| j.checked_sub(k))?);
        prop_assert_eq!(a.inner_product(&b)?, by_grades(&a, &b, |j, k| Some(j.abs_diff(k)))?);
        prop_assert_eq!(a.scalar_product(&b)?, gp(&a, &b)?.scalar_part());
        let commutator = gp(&a, &b)?.minus(&gp(&b, &a)?)?;
        prop_assert_eq!(a.commutator_product(&b)?.scaled(&2), commutator);
    }

    #[test]
    fn outer_product_is_associative_and_alternating((_, [a, b, c]) in exact(5)) {
        prop_assert_eq!(
            a.outer_product(&b)?.outer_product(&c)?,
            a.outer_product(&b.outer_product(&c)?)?
        );
        let (u, v) = (a.grade(1), b.grade(1));
        prop_assert!(u.outer_product(&u)?.is_zero());
        prop_assert_eq!(u.outer_product(&v)?, -v.outer_product(&u)?);
    }

    /// For a vector u: u a = u ⌋ a + u ∧ a.
    #[test]
    fn vectors_split_products_into_contraction_and_outer((_, [u, a]) in exact(5)) {
        let u = u.grade(1);
        prop_assert_eq!(gp(&u, &a)?, u.left_contraction(&a)?.plus(&u.outer_product(&a)?)?);
        prop_assert_eq!(gp(&a, &u)?, a.right_contraction(&u)?.plus(&a.outer_product(&u)?)?);
    }

    /// (a ∧ b) ⌋ c = a ⌋ (b ⌋ c).
    #[test]
    fn contracting_twice_is_contracting_by_the_outer_product((_, [a, b, c]) in exact(5)) {
        prop_assert_eq!(
            a.outer_product(&b)?.left_contraction(&c)?,
            a.left_contraction(&b.left_contraction(&c)?)?
        );
        prop_assert_eq!(
            c.right_contraction(&a.outer_product(&b)?)?,
            c.right_contraction(&a)?.right_contraction(&b)?
        );
    }

    /// x ∗ (y ⌋ z) = (x ∧ y) ∗ z: the contraction is adjoint to the outer product.
    #[test]
    fn contraction_is_adjoint_to_the_outer_product((_, [x, y, z]) in exact(5)) {
        prop_assert_eq!(
            x.scalar_product(&y.left_contraction(&z)?)?,
            x.outer_product(&y)?.scalar_product(&z)?
        );
    }

    #[test]
    fn contractions_mirror_each_other((_, [a, b]) in exact(5)) {
        prop_assert_eq!(a.left_contraction(&b)?.reverse(), b.reverse().right_contraction(&a.reverse())?);
        prop_assert_eq!(a.scalar_product(&b)?, b.scalar_product(&a)?);
        prop_assert_eq!(a.scalar_product(&b)?, a.reverse().scalar_product(&b.reverse())?);
    }

    /// Bivectors form a Lie algebra, and act on every grade.
    #[test]
    fn commutators_satisfy_jacobi((_, [a, b, c]) in exact(4)) {
        let twice = |x: &Exact, y: &Exact, z: &Exact| x.commutator_product(&y.commutator_product(z)?);
        let sum = twice(&a, &b, &c)?.plus(&twice(&b, &c, &a)?)?.plus(&twice(&c, &a, &b)?)?;
        prop_assert!(sum.is_zero());
        let bivector = a.grade(2);
        for grade in b.grades() {
            let moved = bivector.commutator_product(&b.grade(grade))?;
            prop_assert!(moved.grades().iter().all(|&g| g == grade));
        }
    }

    #[test]
    fn squared_norm_is_the_scalar_part_of_reverse_times_self((_, [a]) in exact(6)) {
        prop_assert_eq!(a.squared_norm(), gp(&a.reverse(), &a)?.scalar_part());
        prop_assert_eq!(a.squared_norm(), a.reverse().scalar_product(&a)?);
    }
}

#[test]
fn different_algebras_do_not_mix() -> Result<()> {
    let (left, right) = (algebra(3, 0, 0).scalar(2), algebra(2, 1, 0).scalar(3));
    let mismatch = |operation| Error::AlgebraMismatch {
        operation,
        left: Signature::new(3, 0, 0),
        right: Signature::new(2, 1, 0),
    };
    assert_eq!(left.geometric_product(&right), Err(mismatch("geometric product")));
    assert_eq!(left.outer_product(&right), Err(mismatch("outer product")));
    assert_eq!(left.regressive_product(&right), Err(mismatch("regressive product")));
    assert_eq!(left.scalar_product(&right), Err(mismatch("scalar product")));
    assert_eq!(left.plus(&right), Err(mismatch("sum")));
    assert_eq!(left.sandwich(&right), Err(mismatch("sandwich")));
    assert_ne!(left, right);
    Ok(())
}

#[test]
fn constructors_refuse_wrong_lengths() {
    let cl3 = algebra(3, 0, 0);
    let message = cl3.multivector(&[1.0; 7]).expect_err("one short").to_string();
    assert!(message.contains("`coefficients` has shape [7], expected [8]"), "{message}");
    let message = cl3.vector(&[1.0; 4]).expect_err("one too many").to_string();
    assert!(message.contains("`components` has shape [4], expected [3]"), "{message}");
    assert!(matches!(cl3.generator::<f64>(3), Err(Error::Index { index: 3, count: 3, .. })));
}
