//! Frames of molecules and crystals with their energies and forces: files, units, neighbours, splits and batches.

mod batch;
mod check;
pub mod elements;
mod files;
mod frame;
pub mod neighbours;
mod reference;
mod set;
mod splits;
mod units;

pub use batch::{AtomBatch, AtomTargets};
pub use check::Consistency;
pub use files::{read, write_extended_xyz};
pub use frame::{COINCIDENT, Deviations, Frame, Labels, Vector};
pub use gradewise_kernels::ops::neighbours::Cell;
pub use neighbours::{Neighbours, SkinList};
pub use reference::SPECIES;
pub use set::{AtomOrigin, AtomSet, AtomSource, ETHANOL, Neighbourhood};
pub use units::{EnergyUnit, ForceUnit, LengthUnit, Units};
