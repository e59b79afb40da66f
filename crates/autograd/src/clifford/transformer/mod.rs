//! What transformers of geometric algebra are made of, on feature planes `[scalars + blades · channels, rows]`.

pub(super) mod channel_norm;
pub(super) mod equi_linear;
pub(super) mod heads;

pub use channel_norm::channel_norm;
pub use equi_linear::equi_linear;
pub use heads::{MergeHeads, SplitHeads, merge_heads, split_heads};
