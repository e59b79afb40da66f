//! Facade

pub use gradewise_autograd as autograd;
pub use gradewise_core as core;
pub use gradewise_kernels as kernels;
pub use gradewise_nn as nn;

pub mod verify;
