//! Transformers of geometric algebra: tokens of multivectors and scalars, and attention between them (Brehmer et al. 2023, arXiv:2305.18415;
//! Spinner et al. 2024, arXiv:2405.14806).
//!
//! Networks map [`Streams`]: multivectors `[blades, tokens, channels]`, which transform under the group, and scalars `[tokens, channels]`,
//! which do not. Within a network layers hand on [`FeaturePlanes`]. All are equivariant under the group of their [`Space`]: f(u·x) = u·f(x).
//!
//! [`lgatr`], [`gatr`] and [`slim`] are the published networks. L-GATr's runs in any [`Space`] ([`lgatr::LGATr::init_in`]); GATr's has
//! points, which Cl(3,0,1) alone has, and the slim one the vectors of space-time alone.
#![forbid(unsafe_code)]

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// space, streams
// tokens
// layers
// lgatr, slim
// gatr

pub mod gatr;
mod layers;
pub mod lgatr;
pub mod slim;
mod space;
mod streams;
mod tokens;

pub use layers::{
    EquiLayerNorm, EquiLayerNormBuilder, EquiLinear, EquiLinearBuilder, FeaturePlanes, GradeDropout,
    Initialization, Nonlinearity,
};
pub use space::Space;
pub use streams::{Channels, Streams};
pub use tokens::TokenBatch;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
