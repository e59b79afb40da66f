//! What operators run on: devices, their memory, the driver's launches and captures, settings, and reports of what failed.

mod compute;
pub(crate) mod cuda;
pub mod debug;
mod device;
pub mod external;
pub(crate) mod fault;
pub(crate) mod growing;
pub mod memory;
pub mod occupancy;
mod options;
mod target;
pub mod transfers;
pub mod tuning;

pub use compute::Compute;
pub use cuda::{
    BuildInfo, CapturedGraph, Code, CudaDevice, Fusion, MemoryReport, Resources, build_info, code_remedy,
};
pub use device::{Device, DeviceName};
pub use fault::{Fault, sanitizer, setup_remedy};
pub use memory::Holder;
pub use options::{Options, Products};
pub use target::Target;

/// The greatest number that divides both; the other one of 0.
pub(crate) fn common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
