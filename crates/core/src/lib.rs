//! Clifford (geometric) algebra of any signature, as data.
//!
//! A [`Signature`] (p, q, r) determines everything else: the blades, the sparse Cayley table, the grade paths
//! along which weighted products carry one weight each. [`Algebra`] holds those tables for a signature known at
//! run time.
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
#![forbid(unsafe_code)]

mod algebra;
mod dtype;
mod error;
mod shape;
mod signature;

pub use algebra::{Algebra, Path, Term};
pub use dtype::DType;
pub use error::{Error, Result};
pub use shape::Shape;
pub use signature::{MAX_DIMENSION, Signature};
