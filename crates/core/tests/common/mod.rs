//! Strategies and comparisons shared by the tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use gradewise_core::{Algebra, CliffordAlgebra, Multivector, Result, Signature};
use num_rational::Ratio;
use proptest::{collection::vec, prelude::*};

/// Exact multivectors of a run-time algebra.
pub type Exact = Multivector<Algebra, i64>;
/// Exact multivectors with fractions.
pub type Rational = Multivector<Algebra, Ratio<i128>>;
/// Floating-point multivectors of a run-time algebra.
pub type Float = Multivector<Algebra, f64>;

/// The algebra of a signature known to be small enough.
pub fn algebra(p: u8, q: u8, r: u8) -> Algebra {
    Algebra::new(Signature::new(p, q, r)).expect("p + q + r ≤ 8")
}

/// Any signature with 1 to `max` generators; degenerate and indefinite ones are the rule.
pub fn any_algebra(max: u8) -> impl Strategy<Value = Algebra> {
    (1..=max)
        .prop_flat_map(|n| (Just(n), 0..=n))
        .prop_flat_map(|(n, p)| (Just(n), Just(p), 0..=n - p))
        .prop_map(|(n, p, q)| algebra(p, q, n - p - q))
}

/// An algebra of at most `max` generators and K multivectors in it with small integer coefficients.
pub fn exact<const K: usize>(max: u8) -> impl Strategy<Value = (Algebra, [Exact; K])> {
    any_algebra(max).prop_flat_map(|algebra| {
        let blades = algebra.blade_count();
        let multivector = {
            let algebra = algebra.clone();
            vec(-9..=9i64, blades).prop_map(move |c| algebra.multivector(&c).expect("one per blade"))
        };
        (Just(algebra), vec(multivector, K).prop_map(|all| all.try_into().expect("K multivectors")))
    })
}

/// An algebra and `count` vectors with small integer components whose squares are not zero.
pub fn invertible_vectors(
    max: u8,
    count: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = (Algebra, Vec<Rational>)> {
    any_algebra(max)
        .prop_filter("a metric that is not zero", |algebra| algebra.signature().p + algebra.signature().q > 0)
        .prop_flat_map(move |algebra| {
            let n = algebra.dimension();
            let vector = {
                let algebra = algebra.clone();
                vec(-3..=3i128, n).prop_map(move |c| {
                    let c: Vec<_> = c.into_iter().map(Ratio::from_integer).collect();
                    algebra.vector(&c).expect("one per generator")
                })
            };
            let vector = vector.prop_filter("not null", |v| v.squared_norm() != Ratio::from_integer(0));
            (Just(algebra), vec(vector, count.clone()))
        })
}

/// The geometric product of all factors.
pub fn product(algebra: &Algebra, factors: &[Rational]) -> Result<Rational> {
    factors.iter().try_fold(algebra.scalar(Ratio::from_integer(1)), |v, factor| v.geometric_product(factor))
}

/// Small fractions with the coefficients of `x`.
pub fn rational(x: &Exact) -> Rational {
    let c: Vec<_> = x.coefficients().iter().map(|&c| Ratio::from_integer(i128::from(c))).collect();
    x.algebra().multivector(&c).expect("same algebra")
}

/// ‖a − b‖ / ‖b‖ over coefficients (‖a − b‖ if b is zero). NaN fails every comparison with it.
pub fn relative_error(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let size = norm(&mut b.iter().copied());
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
    if size == 0.0 { difference } else { difference / size }
}

/// Fails unless `a` is `b` within `tolerance`, relative.
#[track_caller]
pub fn assert_close<A: CliffordAlgebra>(a: &Multivector<A, f64>, b: &Multivector<A, f64>, tolerance: f64) {
    let error = relative_error(a.coefficients(), b.coefficients());
    assert!(error <= tolerance, "relative error {error:e} > {tolerance:e}\n left: {a}\nright: {b}");
}
