//! Operators along the edges of a graph, and along lists of places.

pub(crate) mod edges;
pub(crate) mod gather;
pub(crate) mod indexing;
pub mod neighbours;

pub use edges::{concat_segment_mean, edge_difference, net_inflow, net_inflow_onto, segment_spread};
pub use gather::{gather, scatter_add};
pub use indexing::{index_select, segment_sum};
