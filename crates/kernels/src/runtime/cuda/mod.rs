//! CUDA devices: contexts, memory, kernels and how they are launched.
//!
//! The driver is loaded when a device is first asked for, so none of this needs CUDA to build. Which kernels are
//! embedded is decided by the feature `cuda`, see [`image`].

mod accounts;
mod arena;
mod capture;
mod constants;
mod device;
mod failure;
pub(crate) mod fuse;
mod gate;
pub(crate) mod generated;
pub(crate) mod image;
pub(crate) mod kernel;
pub(crate) mod kernels;
mod launch;
mod memory;
mod recycled;
pub(crate) mod rtc;
mod streams;
mod submit;
mod words;

pub use capture::{CapturedGraph, Fusion};
pub(crate) use constants::Key;
pub use device::CudaDevice;
pub(crate) use image::Launch;
pub use image::{BuildInfo, Code, Resources, build_info, code_remedy};
pub(crate) use kernel::{Args, Grid, Kernel};
pub(crate) use memory::Buffer;
pub use memory::MemoryReport;
pub(crate) use words::Words;
