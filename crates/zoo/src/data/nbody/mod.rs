//! Charged particles in space: the n-body benchmark of the equivariance literature.
//!
//! [`Simulation`] moves many systems at once; [`Trajectories`] are recorded frames, simulated or read from the published NumPy files;
//! [`NBodyData`] are the samples a model sees: the state at one frame and the positions at a later one; [`PublishedDraws`] are the initial
//! states of the published systems, reproduced from their seed. The data set was introduced by Kipf et al., "Neural relational inference
//! for interacting systems" (2018), and extended to space by Fuchs et al. (2020) and Satorras et al., "E(n) equivariant graph neural
//! networks" (2021).

pub(crate) mod batch;
mod data;
mod files;
mod published;
mod simulate;
mod trajectories;

pub use batch::NBodyBatch;
pub use data::NBodyData;
pub use published::PublishedDraws;
pub use simulate::{MAX_FORCE, NEAR_COLLISION, STEPS_PER_FRAME, Simulation, TIME_STEP};
pub use trajectories::Trajectories;

/// Particles of a published sample.
pub const PARTICLES: usize = 5;
/// Frame whose state is the model's input.
pub const INPUT_FRAME: usize = 30;
/// Frame whose positions are the model's target.
pub const TARGET_FRAME: usize = 40;
/// Frames of a published trajectory.
pub const PUBLISHED_FRAMES: usize = 49;
