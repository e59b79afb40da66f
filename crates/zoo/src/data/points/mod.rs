//! Sets of vectors with a number to predict from each: the regression experiments of Ruhe, Brandstetter and Forré, "Clifford
//! group equivariant neural networks" (2023, arXiv:2305.11141).

mod hull;
mod sets;

pub use hull::hull_volume;
pub use sets::{O5_MEAN, O5_STANDARD_DEVIATION, PointBatch, PointSets};

/// Points of a hull of the convex hull experiment.
pub const HULL_POINTS: usize = 16;
/// Points of a hull of the experiment of Liu, Ruhe, Eijkelboom and Forré, "Clifford group equivariant simplicial message passing
/// networks" (2024, arXiv:2402.10011).
pub const SMALL_HULL_POINTS: usize = 8;
/// Dimensions of both convex hull experiments.
pub const HULL_DIMENSION: usize = 5;
