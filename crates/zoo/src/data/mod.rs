//! Data sets: simulated, or read from files.

#[cfg(feature = "archives")]
pub mod atoms;
pub mod cache;
pub mod element;
pub mod fields;
pub mod gravity;
#[cfg(feature = "hdf5")]
mod hdf5;
pub mod jets;
pub mod nbody;
pub mod npy;
pub mod numpy;
pub mod points;
pub mod potential;
mod simplices;
pub mod text;

pub use simplices::{Complexes, SimplicialComplex};
