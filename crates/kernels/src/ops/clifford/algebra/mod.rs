//! What the operators share: contracts of shapes, tables of an algebra on a device, and its products as programs for the CPU.

pub(crate) mod contract;
pub(crate) mod device_algebra;
mod generated;
pub(crate) mod lanewise;
pub(crate) mod layout;
pub(crate) mod operands;
pub(crate) mod program;
pub(crate) mod straight;
pub(crate) mod table;
pub(crate) mod tile;
