//! Data sets, published models and their weights, for the layers of `gradewise-nn`.
#![forbid(unsafe_code)]

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// data
// models
// dynamics, expressivity, published, train

pub mod data;
#[cfg(feature = "archives")]
pub mod dynamics;
#[cfg(feature = "archives")]
pub mod expressivity;
pub mod models;
pub mod published;
pub mod train;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
