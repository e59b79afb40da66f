//! Operators on multivector fields: `[blades, batch, *space, channels]`, row-major, with 1 to 3 axes of space.
//!
//! A field is `[blades, rows, channels]` with rows = batch × space, so that pointwise operators on multivectors apply to it without a copy.
mod blade_matrix;
pub mod convolution;
pub mod fourier;
pub mod inverse_cholesky;

pub use blade_matrix::blade_matrix;
