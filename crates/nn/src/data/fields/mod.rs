//! Fields on grids over time: simulated fluids and electromagnetic fields, as the publications on Clifford networks have them.
//!
//! [`smoke`] is Navier–Stokes in the plane, [`maxwell`] Maxwell's equations in space, [`charges`] those of moving charges on space-time of
//! 2+1 dimensions. Each makes a [`FieldSet`], whose [`FieldWindows`] are what models see: some frames and those after them.

pub mod charges;
pub mod maxwell;
pub mod smoke;

mod resize;
mod seeds;
mod set;
mod windows;

pub use set::{FieldLayout, FieldSet};
pub use windows::{FieldWindows, TimeAxis};
