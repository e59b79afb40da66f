//! The operators, one module each.

pub mod clifford;
pub(crate) mod copy;
pub mod optim;
