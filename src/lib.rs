//! Clifford (geometric) algebra neural networks: the algebra, its operators, gradients, layers and training.
//!
//! This crate gathers the others under one name; each can also be used alone.
//!
//! | module | crate | what it holds |
//! |---|---|---|
//! | [`core`] | `gradewise-core` | signatures, multivectors, shapes |
//! | [`kernels`] | `gradewise-kernels` | devices, arrays, operators without gradients |
//! | [`autograd`] | `gradewise-autograd` | tensors and their gradients |
//! | [`nn`] | `gradewise-nn` | layers, models, optimisers, data, checkpoints |
//! | [`verify`] | | checks of every operator against golden vectors |
//!
//! The crate also is the `gradewise` program (feature `cli`, on by default): `gradewise --help`.
#![forbid(unsafe_code)]

pub use gradewise_autograd as autograd;
pub use gradewise_core as core;
pub use gradewise_kernels as kernels;
pub use gradewise_nn as nn;

pub mod verify;
