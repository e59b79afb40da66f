//! Clifford (geometric) algebra neural networks: the algebra, its operators, gradients, layers and training.
//!
//! This crate gathers the others under one name; each can also be used alone.
//!
//! | module | crate | what it holds |
//! |---|---|---|
//! | [`core`] | `gradewise-core` | signatures, multivectors, shapes |
//! | [`ffi`] | `gradewise-ffi` | the CUDA driver and its libraries, loaded at run time |
//! | [`kernels`] | `gradewise-kernels` | devices, arrays, operators without gradients |
//! | [`autograd`] | `gradewise-autograd` | tensors and their gradients |
//! | [`nn`] | `gradewise-nn` | layers, optimisers, checkpoints, trainer |
//! | [`transformers`] | `gradewise-transformers` | transformers of geometric algebra, with the published parameters |
//! | `zoo` | `gradewise-zoo` | data sets, published models and their weights; with the feature `zoo`, which is on by default |
//! | [`distributed`] | `gradewise-distributed` | training on several devices and hosts |
//! | [`verify`] | `gradewise-verify` | checks of operators against golden vectors, of models in two precisions |
//! | `runner` | `gradewise-runner` | what turns a task into a program; with the feature `runner` |
//!
//! The `gradewise` program is the package `gradewise-cli`.
#![forbid(unsafe_code)]

pub use gradewise_autograd as autograd;
pub use gradewise_core as core;
pub use gradewise_distributed as distributed;
pub use gradewise_ffi as ffi;
pub use gradewise_kernels as kernels;
pub use gradewise_nn as nn;
#[cfg(feature = "runner")]
pub use gradewise_runner as runner;
pub use gradewise_transformers as transformers;
pub use gradewise_verify as verify;
#[cfg(feature = "zoo")]
pub use gradewise_zoo as zoo;

/// What most programs need: `use gradewise::prelude::*;`.
pub mod prelude {
    pub use crate::autograd::{BackwardOptions, Gradients, Tensor, clifford, grad, no_grad};
    pub use crate::core::{
        Algebra, Blade, Cga3, Cl2, Cl3, DType, Motor3, Multivector, Pga3, Rotor2, Rotor3, Shape, Signature,
        Sta,
    };
    pub use crate::kernels::{Array, Device};
    pub use crate::nn::{
        DeepClone, Module, Parameter, Placement,
        layers::{
            Bias, CliffordLayer, Layer, MvLayerNorm, MvLinear, MvNormalization, MvSilu, Sequential,
            SteerableProduct,
        },
        optim::{Method, Optimizer, Schedule},
    };
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the book are tests too, and those in READMEs of crates that cannot run them. They lie outside of this package: the build
/// script sets `book` where they are at hand.
#[cfg(all(doctest, book))]
mod book {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../derive/README.md")]
    struct Derive;
    #[doc = include_str!("../../../docs/custom-kernels.md")]
    struct CustomKernels;
    #[doc = include_str!("../../../docs/fields.md")]
    struct Fields;
    #[doc = include_str!("../../../docs/geometric-attention.md")]
    struct GeometricAttention;
    #[doc = include_str!("../../../docs/precision.md")]
    struct Precision;
    #[doc = include_str!("../../../docs/rotor.md")]
    struct Rotor;
    #[doc = include_str!("../../../docs/troubleshooting.md")]
    struct Troubleshooting;
    #[doc = include_str!("../../../docs/weights.md")]
    struct Weights;
}
