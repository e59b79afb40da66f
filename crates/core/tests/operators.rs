//! Multivectors as numbers: operators, scalars on either side, indices by blade, constants, conversions, hashes.

mod common;

use common::{algebra, exact};
use gradewise_core::{
    Algebra, Blade, Cga3, Cl, Cl2, Cl3, Cl5, Error, Multivector, Pga3, Result, Rotor3, Sta, TypeLevel,
};
use num_traits::{ConstOne, ConstZero, One, Zero};
use proptest::{prelude::*, test_runner::TestRunner};
use std::hash::{DefaultHasher, Hash, Hasher};

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Every operator is the product that it stands for, however its operands are passed.
fn check_operators<A: TypeLevel>() {
    let coefficients = || prop::collection::vec(-9..=9i64, A::SIGNATURE.blade_count());
    let property = |(a, b): (Vec<i64>, Vec<i64>)| {
        let (x, y) = (Multivector::<A, i64>::from_coefficients(&a)?, Multivector::from_coefficients(&b)?);
        macro_rules! stands_for {
            ($($operator:tt $method:ident)*) => {$(
                let expected = A::into_result(x.$method(&y))?;
                prop_assert_eq!(&(&x $operator &y), &expected);
                prop_assert_eq!(&(x.clone() $operator &y), &expected);
                prop_assert_eq!(&(&x $operator y.clone()), &expected);
                prop_assert_eq!(&(x.clone() $operator y.clone()), &expected);
            )*};
        }
        stands_for!(*geometric_product ^ outer_product | inner_product & regressive_product + plus - minus);
        stands_for!(^ wedge & vee);
        prop_assert_eq!(&!&x, &x.dual());
        prop_assert_eq!(!x.clone(), x.dual());
        macro_rules! assigns {
            ($($assign:tt $operator:tt)*) => {$(
                let mut changed = x.clone();
                changed $assign y.clone();
                prop_assert_eq!(&changed, &(&x $operator &y));
                let mut changed = x.clone();
                changed $assign &y;
                prop_assert_eq!(&changed, &(&x $operator &y));
            )*};
        }
        assigns!(+= + -= - *= * ^= ^);
        let scalar = Multivector::<A, i64>::from(3);
        prop_assert_eq!(&x + 3, &x + &scalar);
        prop_assert_eq!(3 + &x, &scalar + &x);
        prop_assert_eq!(&x - 3, &x - &scalar);
        prop_assert_eq!(3 - &x, &scalar - &x);
        prop_assert_eq!(&x * 3, &x * &scalar);
        prop_assert_eq!(3 * &x, &x * &scalar);
        prop_assert_eq!(&(&x * 3) / 3, x.clone());
        let mut changed = x.clone();
        changed += 3;
        changed -= 1;
        prop_assert_eq!(&changed, &(2 + x.clone()));
        prop_assert_eq!([&x, &y].into_iter().sum::<Multivector<A, i64>>(), &x + &y);
        prop_assert_eq!([x.clone(), y.clone()].into_iter().product::<Multivector<A, i64>>(), &x * &y);
        prop_assert_eq!(hash(&x) == hash(&y), x == y);
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(32))
        .run(&(coefficients(), coefficients()), property)
        .unwrap_or_else(|error| panic!("{}: {error}", A::SIGNATURE));
}

#[test]
fn operators_are_the_named_products() {
    check_operators::<Cl<0, 0, 0>>();
    check_operators::<Cl2>();
    check_operators::<Cl3>();
    check_operators::<Sta>();
    check_operators::<Pga3>();
    check_operators::<Cga3>();
    check_operators::<Cl<1, 2, 3>>();
}

proptest! {
    /// A multivector is the sum over its blades of coefficients by index, whatever the algebra.
    #[test]
    fn indices_by_blade_reach_every_coefficient((algebra, [a]) in exact(8)) {
        let mut sum = algebra.zero();
        for mask in 0..1u16 << algebra.dimension() {
            let blade = Blade::from_mask(mask).expect("within eight generators");
            prop_assert_eq!(blade.to_string(), algebra.blade_name(algebra.blade_of_mask(mask).expect("a blade")));
            prop_assert_eq!(blade.to_string().parse(), Ok(blade));
            prop_assert_eq!(blade.grade(), usize::from(algebra.grades()[algebra.blade_of_mask(mask).expect("a blade")]));
            sum = sum.plus(&algebra.basis(blade)?.scaled(&a[blade]))?;
        }
        prop_assert_eq!(&sum, &a);
        let beyond = Blade::from_mask(1 << algebra.dimension());
        prop_assert!(beyond.is_none_or(|blade| a.get(blade).is_none()));
    }

    /// Meets and joins go with what vectors stand for: points, or planes where a generator is null.
    #[test]
    fn meets_and_joins_are_the_two_products((algebra, [a, b]) in exact(5)) {
        let (wedge, vee) = (a.wedge(&b)?, a.vee(&b)?);
        let (join, meet) = (a.join(&b)?, a.meet(&b)?);
        prop_assert_eq!((join, meet), if algebra.signature().r > 0 { (vee, wedge) } else { (wedge, vee) });
    }
}

#[test]
fn blades_are_constants() {
    const PLANE: Multivector<Cl3, f64> = Multivector::basis(Blade::E12);
    const ALL: Multivector<Cl5, i32> = Multivector::basis(Blade::E12345);
    const NUMBERS: Multivector<Cl2, f32> = Multivector::new([1.0, 2.0, 3.0, 4.0]);
    assert_eq!((PLANE.e12(), PLANE.e13()), (1.0, 0.0));
    assert_eq!(ALL, Multivector::pseudoscalar());
    assert_eq!((NUMBERS[Blade::SCALAR], NUMBERS.e1(), NUMBERS.e2(), NUMBERS.e12()), (1.0, 2.0, 3.0, 4.0));
    assert_eq!(Multivector::<Cl3, f64>::ZERO, Multivector::zero());
    assert_eq!(<Multivector<Cl3, f64> as ConstOne>::ONE, Multivector::scalar(1.0));
    assert!(<Multivector<Cl3, i8> as ConstZero>::ZERO.is_zero());
    // Every blade of every place, against the table of the algebra.
    for blade in 0..32 {
        let e = Multivector::<Cl5, i64>::basis(Blade::from_mask(blade).expect("a blade"));
        assert_eq!(e[Blade::from_mask(blade).expect("a blade")], 1);
        assert_eq!(e.coefficients().iter().sum::<i64>(), 1);
    }
}

#[test]
fn zero_one_and_default_are_what_they_are_called() {
    assert_eq!(<Multivector<Cl3, f64> as Zero>::zero(), Multivector::default());
    assert!(Zero::is_zero(&Multivector::<Cl3, f64>::default()));
    assert_eq!(<Multivector<Cl3, f64> as One>::one(), 1.0.into());
    assert_eq!(Rotor3::<f64>::default(), Rotor3::identity());
    assert!(Rotor3::<f64>::one().is_one());
}

#[test]
fn rotors_compose_by_reference() -> Result<()> {
    let quarter = Rotor3::from_axis_angle([0.0, 0.0, 1.0], std::f64::consts::FRAC_PI_2)?;
    let r = &quarter;
    let half = r * r;
    assert_eq!(half, quarter * quarter);
    assert_eq!((r * quarter, quarter * r), (half, half));
    let mut turned = quarter;
    turned *= quarter;
    assert_eq!(turned, half);
    assert_eq!([quarter, quarter].into_iter().product::<Rotor3>(), half);
    Ok(())
}

#[test]
fn blades_that_are_not_there_are_refused() {
    let plane = algebra(2, 0, 0);
    let expected = Error::NoSuchBlade {
        operation: "multivector from a blade",
        blade: Blade::E13,
        signature: plane.signature(),
    };
    assert_eq!(plane.basis::<f64>(Blade::E13), Err(expected));
    assert_eq!(plane.scalar(1.0).get(Blade::E3), None);
    for text in ["", "e", "e0", "e9", "e21", "e11", "12", "ee1", "e1 "] {
        assert!(text.parse::<Blade>().is_err(), "{text}");
    }
    assert_eq!(Blade::of(&[9]), None);
    assert_eq!(Blade::from_mask(256), None);
}

#[test]
#[should_panic(expected = "Cl(2,0,0) has no blade e3")]
fn an_index_beyond_the_algebra_panics_like_any_other() {
    let _ = Algebra::zero::<f64>(&algebra(2, 0, 0))[Blade::E3];
}

#[test]
fn regressive_products_work_in_eight_dimensions() -> Result<()> {
    let algebra = algebra(5, 2, 1);
    let product = algebra.scalar(2.0).regressive_product(&algebra.pseudoscalar())?;
    assert_eq!(product, algebra.scalar(2.0));
    Ok(())
}
