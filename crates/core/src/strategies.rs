//! Strategies of [proptest](https://docs.rs/proptest) that draw what hurts: null and nearly null vectors, numbers whose squares
//! overflow or vanish, subnormal ones, motions far from the origin, half and full turns and what is close to them.
//!
//! `any::<Signature>()`, `any::<Algebra>()`, `any::<Multivector<Cl3, f64>>()`, `any::<Rotor3>()` and the like draw from them, too.
//!
//! ```
//! use gradewise_core::{Multivector, Pga3, pga3, strategies::any_motor};
//! use proptest::{prelude::*, test_runner::TestRunner};
//!
//! // Motions, however far, leave distances alone: as far as coordinates of that size can tell.
//! TestRunner::default().run(&any_motor::<f64>(), |motor| {
//!     let [a, b] = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]].map(|x| motor.apply(&pga3::point(x)));
//!     let far = motor.displacement().unwrap().iter().fold(1.0f64, |far, x| far.max(x.abs()));
//!     prop_assert!((pga3::distance(&a, &b).unwrap() - 1.0).abs() <= 1e-14 * far);
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{
    Algebra, CliffordAlgebra, MAX_DIMENSION, Motor3, Multivector, Real, Rotor, Rotor3, Signature, TypeLevel,
};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use proptest::{collection::vec, prelude::*};

/// Signatures with a number of generators in the range, of any metric: indefinite and degenerate ones are the rule. The range ends
/// at [`MAX_DIMENSION`] at the latest.
pub fn any_signature(generators: RangeInclusive<u8>) -> impl Strategy<Value = Signature> {
    let last = (*generators.end()).min(MAX_DIMENSION as u8);
    ((*generators.start()).min(last)..=last)
        .prop_flat_map(|n| (Just(n), 0..=n))
        .prop_flat_map(|(n, p)| (Just(n), Just(p), 0..=n - p))
        .prop_map(|(n, p, q)| Signature::new(p, q, n - p - q))
}

/// Run-time algebras of [`any_signature`].
pub fn any_algebra(generators: RangeInclusive<u8>) -> impl Strategy<Value = Algebra> {
    any_signature(generators)
        .prop_filter_map("at most eight generators", |signature| Algebra::new(signature).ok())
}

/// Numbers of every size: zero, small integers, numbers below one, and numbers whose squares overflow or vanish, down to subnormal ones.
/// All are finite, and so is the sum of a thousand of them.
pub fn any_number<T: Real + 'static>() -> impl Strategy<Value = T> {
    // Where squares overflow and vanish: 10^±19 in f32, 10^±154 in f64.
    let limit = T::max_value().sqrt().log10().to_i32().unwrap_or(19);
    let power = |(mantissa, exponent): (f64, i32)| T::from_f64(mantissa) * T::from_f64(10.0).powi(exponent);
    prop_oneof![
        2 => Just(T::zero()),
        2 => (-3i8..=3).prop_map(|x| T::from_f64(f64::from(x))),
        6 => (-1.0..1.0f64).prop_map(T::from_f64),
        2 => (-1.0..1.0f64, -limit / 2..limit / 2).prop_map(power),
        1 => (-1.0..1.0f64, -2 * limit..2 * limit - 3).prop_map(power),
        1 => (1u8..100).prop_map(|ulps| T::min_positive_value() * T::epsilon() * T::from_f64(f64::from(ulps))),
    ]
}

/// Multivectors with coefficients of [`any_number`], all grades or one of them, of one size or of many.
pub fn any_multivector<A, T>(algebra: &A) -> impl Strategy<Value = Multivector<A, T>> + use<A, T>
where
    A: CliffordAlgebra + 'static,
    T: Real + 'static,
{
    let algebra = algebra.clone();
    let n = algebra.signature().dimension();
    let blades = algebra.signature().blade_count();
    let common = any_number::<T>();
    let mixed = vec(any_number::<T>(), blades);
    let alike = (vec(-1.0..1.0f64, blades), common)
        .prop_map(|(c, size)| c.into_iter().map(|c| T::from_f64(c) * size).collect::<Vec<T>>());
    let grade = prop_oneof![1 => Just(None), 1 => (0..=n).prop_map(Some)];
    (prop_oneof![alike, mixed], grade).prop_filter_map("one coefficient per blade", move |(c, grade)| {
        let all = Multivector::from_coefficients_in(&algebra, &c).ok()?;
        Some(grade.map_or_else(|| all.clone(), |grade| all.grade(grade)))
    })
}

/// Vectors of the order of one whose square is not zero: any, those along generators, and where the metric is indefinite those within
/// 10⁻³ of null ones. Components along null generators may be large.
fn invertible_vector<A, T>(algebra: &A) -> impl Strategy<Value = Multivector<A, T>> + use<A, T>
where
    A: CliffordAlgebra + 'static,
    T: Real + 'static,
{
    let algebra = algebra.clone();
    let signature = algebra.signature();
    let (p, n) = (usize::from(signature.p), signature.dimension());
    let metric = usize::from(signature.p + signature.q);
    let free = vec(-1.0..1.0f64, n);
    let along = (0..metric.max(1)).prop_map(move |generator| {
        (0..n).map(|index| if index == generator { 1.0 } else { 0.0 }).collect::<Vec<f64>>()
    });
    let nearly_null = (vec(-1.0..1.0f64, n), -3.0..0.0f64).prop_map(move |(mut c, digits)| {
        let length = |c: &[f64]| num_traits::Float::sqrt(c.iter().map(|x| x * x).sum::<f64>());
        let (space, time) = (length(&c[..p]), length(&c[p..metric]));
        if space > 0.0 && time > 0.0 {
            let factor = space / time * (1.0 + num_traits::Float::powf(10.0, digits));
            c[p..metric].iter_mut().for_each(|x| *x *= factor);
        }
        c
    });
    let far = prop_oneof![2 => Just(1.0), 1 => (0.0..5.0f64).prop_map(|digits| num_traits::Float::powf(10.0, digits))];
    (prop_oneof![3 => free, 1 => along, 1 => nearly_null], far).prop_filter_map(
        "a vector whose square is not zero",
        move |(mut c, far)| {
            c[metric..].iter_mut().for_each(|x| *x *= far);
            let c: Vec<T> = c.into_iter().map(T::from_f64).collect();
            let vector = Multivector::vector_in(&algebra, &c).ok()?;
            let square = vector.squared_norm().abs();
            (square > T::from_f64(1e-4) && vector.normalized().is_ok()).then_some(vector)
        },
    )
}

/// Versors: products of one to n + 1 vectors whose squares are not zero, even and odd ones. Of a metric that is zero, the number 1.
pub fn any_versor<A, T>(algebra: &A) -> impl Strategy<Value = Multivector<A, T>> + use<A, T>
where
    A: CliffordAlgebra + 'static,
    T: Real + 'static,
{
    let algebra = algebra.clone();
    let signature = algebra.signature();
    let one = Multivector::scalar_in(&algebra, T::one());
    if signature.p + signature.q == 0 {
        return Just(one).boxed();
    }
    vec(invertible_vector(&algebra), 1..=signature.dimension() + 1)
        .prop_map(move |factors| factors.iter().fold(one.clone(), |product, v| product.times(v)))
        .boxed()
}

/// An angle: anything up to two turns, multiples of a quarter of a turn, and what is close to these, down to a few ulps.
fn any_angle() -> impl Strategy<Value = f64> {
    let quarters = (-4i8..=4).prop_map(|k| f64::from(k) * core::f64::consts::FRAC_PI_2);
    let close = (-4i8..=4, -16.0..-1.0f64, any::<bool>()).prop_map(|(k, digits, below)| {
        let offset = num_traits::Float::powf(10.0, digits);
        f64::from(k) * core::f64::consts::FRAC_PI_2 + if below { -offset } else { offset }
    });
    prop_oneof![2 => -6.0..6.0f64, 1 => quarters, 2 => close]
}

/// Rotors, each the exponential of a bivector: small and large ones, commuting planes with half and full turns and what is close to
/// them, null planes, motions up to 10⁶ units away where there are null generators. Rapidities are at most 3.
pub fn any_rotor<A, T>(algebra: &A) -> impl Strategy<Value = Rotor<A, T>> + use<A, T>
where
    A: CliffordAlgebra + 'static,
    T: Real + 'static,
{
    let algebra = algebra.clone();
    let signature = algebra.signature();
    let n = signature.dimension();
    let first = n + 1;
    let planes = n * n.saturating_sub(1) / 2;
    let metric = usize::from(signature.p + signature.q);
    // Components of a bivector, by pairs of generators.
    let square = move |a: usize, b: usize| {
        let sign = |g: usize| {
            if g < usize::from(signature.p) {
                1i8
            } else if g < metric {
                -1
            } else {
                0
            }
        };
        sign(a) * sign(b)
    };
    let pairs: Vec<(usize, usize)> = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))).collect();
    let free = (vec(-1.0..1.0f64, planes), -8.0..0.3f64).prop_map(|(c, digits)| {
        c.iter().map(|c| c * num_traits::Float::powf(10.0, digits)).collect::<Vec<f64>>()
    });
    let turns = {
        let pairs = pairs.clone();
        (vec(any_angle(), n), Just((0..n).collect::<Vec<usize>>()).prop_shuffle()).prop_map(
            move |(angles, order)| {
                let mut components = alloc::vec![0.0; pairs.len()];
                for (pair, angle) in order.chunks_exact(2).zip(angles) {
                    let (a, b) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                    let place = pairs.iter().position(|&other| other == (a, b)).unwrap_or_default();
                    components[place] = if square(a, b) > 0 { angle } else { angle / 2.5 };
                }
                components
            },
        )
    };
    let null = (vec(-1.0..1.0f64, n), 0..planes.max(1)).prop_map(move |(v, place)| {
        // A null vector, if there is one, with a generator.
        let mut components = alloc::vec![0.0; pairs.len()];
        if planes > 0 {
            let (a, b) = pairs[place];
            for (at, &(c, d)) in pairs.iter().enumerate() {
                if c == a && d != b {
                    components[at] = v[d];
                }
            }
        }
        components
    });
    let far = prop_oneof![2 => Just(1.0), 1 => (0.0..6.0f64).prop_map(|digits| num_traits::Float::powf(10.0, digits))];
    (prop_oneof![2 => free, 2 => turns, 1 => null], far).prop_filter_map(
        "an exponential of rapidities up to 3",
        move |(components, far)| {
            let mut bivector = Multivector::zero_in(&algebra);
            for (c, x) in bivector.coefficients_mut().iter_mut().skip(first).zip(components) {
                *c = T::from_f64(x);
            }
            let rotor = Rotor::exp(&bivector.with_null_generators_scaled(&T::from_f64(far))).ok()?;
            (rotor.as_multivector().sizes()[0] < T::from_f64(200.0)).then_some(rotor)
        },
    )
}

/// Rigid motions of space: rotations by any angle, half and full turns and what is close to them, followed by translations of 10⁻⁶ to 10⁶ units.
pub fn any_motor<T: Real + 'static>() -> impl Strategy<Value = Motor3<T>> {
    let axis = [-1.0..1.0f64, -1.0..1.0, -1.0..1.0];
    let shift = (
        [-1.0..1.0f64, -1.0..1.0, -1.0..1.0],
        prop_oneof![1 => Just(None), 4 => (-6.0..6.0f64).prop_map(Some)],
    );
    (axis, any_angle(), shift).prop_filter_map(
        "an axis that is not zero",
        |(axis, angle, (shift, digits))| {
            let turn = Rotor3::from_axis_angle(axis.map(T::from_f64), T::from_f64(angle)).ok()?;
            let size = digits.map_or(0.0, |digits| num_traits::Float::powf(10.0, digits));
            Some(Motor3::from_rotation_translation(&turn, shift.map(|x| T::from_f64(x * size))))
        },
    )
}

/// Up to six generators.
impl Arbitrary for Signature {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        any_signature(0..=6).boxed()
    }
}

/// Up to six generators.
impl Arbitrary for Algebra {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        any_algebra(0..=6).boxed()
    }
}

/// As [`any_multivector`].
impl<A: TypeLevel + 'static, T: Real + 'static> Arbitrary for Multivector<A, T> {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        any_multivector(&A::default()).boxed()
    }
}

/// As [`any_rotor`].
impl<A: TypeLevel + 'static, T: Real + 'static> Arbitrary for Rotor<A, T> {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        any_rotor(&A::default()).boxed()
    }
}
