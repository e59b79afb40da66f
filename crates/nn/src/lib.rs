//! Equivariant networks on Clifford algebras: data, layers, models, optimisers, checkpoints and training.
#![forbid(unsafe_code)]

// The paths in what `#[derive(Module)]` writes hold in this crate, too.
extern crate self as gradewise_nn;

// The order of modules:
//
// error, metrics
// checkpoint, loss, parameter
// curvature, ensemble
// module, symmetry
// data, init, layers, optim, quadratic
// choice, fields, geometric, tracks
// models
// published, train

pub mod checkpoint;
pub mod choice;
pub mod curvature;
pub mod data;
mod ensemble;
mod error;
pub mod fields;
pub mod geometric;
pub mod init;
pub mod layers;
pub mod loss;
pub mod metrics;
pub mod models;
mod module;
pub mod optim;
mod parameter;
pub mod published;
mod quadratic;
pub mod symmetry;
pub mod tracks;
pub mod train;

pub use ensemble::{Ensemble, Prediction};
pub use error::{Error, Result};
pub use gradewise_derive::Module;
pub use module::{Module, Part, Visitor};
pub use parameter::{Parameter, Placement};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Those of the derive macro need its trait.
#[cfg(doctest)]
#[doc = include_str!("../../derive/README.md")]
struct DeriveReadme;
