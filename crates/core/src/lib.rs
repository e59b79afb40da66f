//! Clifford (geometric) algebra of any signature, as data.
//!
//! A [`Signature`] (p, q, r) determines everything else: the blades, the sparse Cayley table, the grade paths
//! along which weighted products carry one weight each. [`Algebra`] holds those tables for a signature known at
//! run time; [`Cl<P, Q, R>`](Cl) is the same as a type. A [`Multivector`] belongs to either and has every product of
//! the literature; a [`Rotor`] moves multivectors.
//!
//! The crate has no unsafe code, knows nothing of devices, and does no I/O. It also defines the vocabulary the
//! numerical crates above it share: [`Shape`], [`DType`] and the shape errors.
//!
//! ```
//! use gradewise_core::{Algebra, Signature};
//!
//! let spacetime = Algebra::new(Signature::new(1, 3, 0))?;
//! assert_eq!(spacetime.blade_count(), 16);
//! assert_eq!(spacetime.paths().len(), 35);
//! assert_eq!(spacetime.terms().len(), 256);
//! # Ok::<(), gradewise_core::Error>(())
//! ```
//!
//! # Spellings
//! The names of the literature and of other libraries, in one place:
//!
//! ```
//! use gradewise_core::{Blade, Cl, Cl3, Motor3, Multivector, Rotor3, cga3, pga3};
//! use num_traits::{One, Zero};
//!
//! const E12: Multivector<Cl3, f64> = Multivector::basis(Blade::E12);
//!
//! let mv = Multivector::<Cl3, f64>::from([1.0, 2.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0]);
//! let [a, b, _] = Multivector::<Cl3, f64>::generators();
//! assert_eq!((mv[Blade::E12], mv.e12()), (5.0, 5.0));
//! assert_eq!((a ^ b, a.wedge(&b), a.join(&b)), (E12, E12, E12));
//! assert_eq!((a | a, !a, E12 & !a), (One::one(), !(2.0 * a) / 2.0, E12.meet(&!a)));
//! assert_eq!(mv - 1.0 - 2.0 * a - E12 * 5.0, Zero::zero());
//! assert_eq!(Multivector::<Cl3, f64>::default(), Multivector::zero());
//!
//! let r: Rotor3 = Rotor3::from_axis_angle([0.0, 0.0, 1.0], 0.3)?;
//! assert!(((&r * &r).log()? - r.log()? * 2.0).norm() < 1e-14);
//! let q = Rotor3::from_quaternion(r.to_quaternion())?;
//! let same: Rotor3 = Rotor3::from_matrix(&r.to_matrix())?.slerp(&q, 0.5)?;
//! assert!((same.to_axis_angle().1 - 0.3).abs() < 1e-14);
//! let motor = Motor3::translation([0.0, 0.0, 1.0]) * Motor3::from(r);
//!
//! // Projective space: a line meets a plane, and a direction is a point at infinity.
//! let axis = pga3::line([0.0, 0.0, 0.0], [0.0, 0.0, 1.0]);
//! assert_eq!(axis, pga3::point([0.0, 0.0, 0.0]) & pga3::direction([0.0, 0.0, 1.0]));
//! let hit = motor.apply(&axis.meet(&pga3::plane(0.0, 0.0, 1.0, -1.0)));
//! assert!(pga3::distance(&hit, &pga3::point([0.0, 0.0, 2.0]))? < 1e-14);
//!
//! // Conformal space: a sphere meets a plane in a circle, which is moved and doubled.
//! let cut = cga3::sphere([0.0, 0.0, 0.0], 1.0) & cga3::plane([0.0, 0.0, 1.0], 0.0)?;
//! let circle = cga3::circle([0.0f64, 0.0, 0.0], [0.0, 0.0, 1.0], 1.0)?;
//! assert!((cut ^ cga3::point([1.0, 0.0, 0.0])).norm() + (circle ^ cga3::point([1.0, 0.0, 0.0])).norm() < 1e-14);
//! let moved = (cga3::dilator(2.0)? * cga3::translator([3.0, 0.0, 0.0])).apply(&circle);
//! assert!((cga3::radius(&moved)? - 2.0).abs() + (cga3::center(&moved)?[0] - 6.0).abs() < 1e-12);
//! assert!((cga3::origin::<f64>() | cga3::infinity()) == Multivector::scalar(-1.0));
//!
//! // A boost and a rotation at once, in space-time.
//! let bivector: Multivector<Cl<1, 3, 0>, f64> = "0.5e12 + 1.25e34".parse()?;
//! assert!((bivector.exp()?.log()? - bivector).norm() < 1e-14);
//! let x: Multivector<Cl3, f64> = "3 + e1 - 2e23 + e123".parse()?;
//! assert!((x * x.inverse()? - 1.0).norm() < 1e-14);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(
    feature = "serde",
    doc = r##"
With the feature `serde`, values are text and numbers:

```
use gradewise_core::{Cl2, Multivector};

let x: Multivector<Cl2, f64> = "1 + 2e12".parse()?;
let json = serde_json::to_string(&x)?;
assert_eq!(json, r#"{"signature":"Cl(2,0,0)","coefficients":[1.0,0.0,0.0,2.0]}"#);
assert_eq!(serde_json::from_str::<Multivector<Cl2, f64>>(&json)?, x);
# Ok::<(), Box<dyn std::error::Error>>(())
```
"##
)]
#![cfg_attr(
    feature = "proptest",
    doc = r##"
With the feature `proptest`, [`strategies`] draw what tests of code built on this crate should meet: null and nearly null vectors, large and
subnormal numbers, motions far away, half and full turns.

```
use gradewise_core::{Rotor3, strategies::{any_algebra, any_rotor}};
use proptest::{prelude::*, test_runner::TestRunner};

let rotors = any_algebra(1..=4).prop_flat_map(|algebra| any_rotor::<_, f64>(&algebra));
TestRunner::default().run(&(rotors, any::<Rotor3>()), |(r, turn)| {
    let back = r.after(&r.inverse()).unwrap();
    prop_assert!((back.as_multivector().scalar_part() - 1.0).abs() < 1e-9);
    prop_assert!((turn.as_multivector().norm() - 1.0).abs() < 1e-14);
    Ok(())
})?;
# Ok::<(), Box<dyn std::error::Error>>(())
```
"##
)]
#![forbid(unsafe_code)]
#![no_std]

#[cfg(not(any(feature = "std", feature = "libm")))]
compile_error!("gradewise-core needs the feature `std` (the default) or, without a standard library, `libm`");

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// per_axis, once
// signature
// blade
// dtype, error, scalar, shape, basis, tables
// algebra
// metric
// clifford
// multivector
// cl, text
// rotor
// pga3
// cga3
// serialized, strategies

mod algebra;
mod basis;
mod blade;
pub mod cga3;
mod cl;
mod clifford;
mod dtype;
mod error;
mod metric;
mod multivector;
mod once;
mod per_axis;
pub mod pga3;
mod rotor;
mod scalar;
#[cfg(feature = "serde")]
mod serialized;
mod shape;
mod signature;
#[cfg(feature = "proptest")]
pub mod strategies;
mod tables;
mod text;

pub use algebra::Algebra;
pub use basis::Blade;
pub use cl::{Cga3, Cl, Cl2, Cl3, Cl4, Cl5, Pga2, Pga3, Sta};
pub use clifford::{CliffordAlgebra, TypeLevel};
pub use dtype::DType;
pub use error::{Error, Result};
pub use metric::OrderedMetric;
pub use multivector::Multivector;
pub use per_axis::PerAxis;
pub use rotor::{Motor3, Rotor, Rotor2, Rotor3};
pub use scalar::{Real, Scalar};
pub use shape::Shape;
pub use signature::{MAX_DIMENSION, Signature};
pub use tables::{Path, Term};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
