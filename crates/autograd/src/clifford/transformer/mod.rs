//! What transformers of geometric algebra are made of, on feature planes `[scalars + blades · channels, rows]`.

mod activation;
pub(super) mod channel_norm;
pub(super) mod equi_linear;
pub(super) mod heads;
pub(super) mod joint_norm;
pub(super) mod product_gate;

pub use channel_norm::channel_norm;
pub use equi_linear::equi_linear;
pub use heads::{MergeHeads, SplitHeads, merge_heads, split_heads};
pub use joint_norm::joint_norm;
pub use product_gate::product_gate;
