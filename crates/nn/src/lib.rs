//! Equivariant networks on Clifford algebras: data, layers, models, optimisers, checkpoints and training.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
mod error;

pub use error::{Error, Result};
