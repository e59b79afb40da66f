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
#![forbid(unsafe_code)]
#![no_std]

#[cfg(not(any(feature = "std", feature = "libm")))]
compile_error!("gradewise-core needs the feature `std` (the default) or, without a standard library, `libm`");

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// The order of modules: each uses those on lines above it, and those that `+` joins it to; tests/modules.rs of the workspace looks.
//
// per_axis, once
// signature + blade
// dtype, error, scalar, shape, basis, tables
// algebra
// metric
// clifford + multivector
// cl, text
// rotor
// pga3
// cga3
// serialized

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

/// The examples of the book are tests too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rotor.md")]
struct Tutorial;
