//! Data sets, published models and their weights, on the layers of `gradewise-nn` and `gradewise-transformers`.
#![forbid(unsafe_code)]

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// data, tracks
// models
// dynamics, expressivity, published, train

pub mod data;
#[cfg(feature = "archives")]
pub mod dynamics;
#[cfg(feature = "archives")]
pub mod expressivity;
pub mod models;
pub mod published;
pub mod tracks;
pub mod train;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
