//! What transformers of geometric algebra are made of, on feature planes: matrices `[scalars + blades · channels, rows]` that hold the
//! scalars' channels and then, plane by plane, those of the multivectors, a plane being a blade. Blades lie in an [order](Order) of the
//! caller's.

pub mod channel_norm;
pub mod equi_linear;
pub mod heads;
mod order;

pub use order::Order;
