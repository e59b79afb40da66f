//! What transformers of geometric algebra are made of, on feature planes: matrices `[scalars + blades · channels, rows]` that hold the
//! scalars' channels and then, plane by plane, those of the multivectors, a plane being a blade. Blades lie in an [order](Order) of the
//! caller's.

mod activation;
pub mod channel_norm;
mod chunks;
pub mod equi_linear;
pub mod heads;
pub mod joint_norm;
mod order;
pub mod product_gate;

pub use activation::Activation;
pub use order::Order;
