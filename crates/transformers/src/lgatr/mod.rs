//! L-GATr, the Lorentz-equivariant transformer (Spinner et al. 2024, arXiv:2405.14806; Brehmer et al. 2024, arXiv:2411.00446), with the
//! functions, the names and the shapes of parameters, and the options of the published package `lgatr` 2.0. Settings are written and read as
//! the arguments of its constructors.

mod attention;
mod block;
mod conditional;
mod config;
mod mlp;
mod network;

pub use attention::SelfAttention;
pub use block::LGATrBlock;
pub use conditional::{ConditionalLGATr, ConditionalLGATrBlock, CrossAttention};
pub use config::{AttentionConfig, ConditionalLGATrConfig, LGATrConfig, MlpConfig, PrimitivesConfig};
pub use mlp::{GeoMlp, GeometricBilinear};
pub use network::LGATr;

/// ε of the norms, which the published package keeps in single precision.
const EPSILON: f64 = 0.01f32 as f64;
