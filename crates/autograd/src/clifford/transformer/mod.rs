//! Steps of a geometric-algebra transformer on feature planes.

pub(crate) mod heads;

pub use heads::{MergeHeads, SplitHeads, merge_heads, split_heads};
