//! GATr, the transformer that is equivariant under rotations, reflections and translations (Brehmer, de Haan, Behrends and Cohen 2023,
//! arXiv:2305.18415), with the functions, the names and the shapes of parameters, and the options of the published package `gatr` 1.4.
//! Settings are written and read as the arguments of its constructors.

mod attention;
mod axial;
mod block;
mod config;
mod mlp;
mod network;
mod rotary;

pub use attention::SelfAttention;
pub use axial::{AxialGATr, AxialTokens};
pub use block::GATrBlock;
pub use config::{AttentionConfig, AxialGATrConfig, GATrConfig, MlpConfig};
pub use mlp::{GeoMlp, GeometricBilinear};
pub use network::{GATr, JoinReference};
