//! Equivariant networks on Clifford algebras: data, layers, models, optimisers, checkpoints and training.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod choice;
pub mod data;
mod error;
pub mod geometric;
pub mod init;
pub mod layers;
pub mod loss;
pub mod metrics;
pub mod models;
pub mod optim;
mod parameter;
mod quadratic;
pub mod symmetry;
pub mod train;

pub use error::{Error, Result};
pub use parameter::{Module, Parameter, Placement, Visitor};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
