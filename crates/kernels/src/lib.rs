//! Arrays on a device and the operators on them, with no knowledge of gradients.
//!
//! An [`Array`] is shared storage with a shape, strides, a dtype and a [`Device`]. Views (reshape, permute, slice,
//! broadcast) share the storage; writing copies when the storage is shared. Operators validate shapes, dtypes and
//! devices and say by name what is wrong. Every reduction has a fixed order, so that the same inputs give the same
//! bits whatever the number of threads.
//!
//! ```
//! use gradewise_kernels::{Array, Device};
//!
//! let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu)?;
//! let column = x.slice(1, 0..1)?;
//! assert_eq!(column.strides(), &[3, 1]);
//! assert_eq!(column.to_vec::<f32>()?, [1.0, 4.0]);
//! assert!(column.as_slice::<f32>().is_err(), "a strided view is refused, not misread");
//! # Ok::<(), gradewise_kernels::Error>(())
//! ```

// The order of modules: each uses those on lines above it, and those that `+` joins it to; tests/modules.rs of the workspace looks.
//
// compute, debug, error, external, growing, launches, occupancy, target, transfers, tuning
// fault, options
// cuda + device + memory
// element + simd
// gemm, parallel
// split
// array
// collectives, custom, index, positions
// ops

mod array;
mod collectives;
mod compute;
mod cuda;
pub mod custom;
pub mod debug;
mod device;
mod element;
mod error;
pub mod external;
mod fault;
mod gemm;
mod growing;
mod index;
mod launches;
pub mod memory;
pub mod occupancy;
pub mod ops;
mod options;
mod parallel;
mod positions;
mod simd;
mod split;
mod target;
pub mod transfers;
pub mod tuning;

pub use array::{Array, Borrowed};
pub use collectives::{Collectives, InFlight};
pub use compute::Compute;
pub use cuda::{
    BuildInfo, CapturedGraph, Code, CudaDevice, MemoryReport, Resources, build_info, code_remedy,
};
pub use device::Device;
pub use element::Element;
pub use error::{Error, Result};
pub use fault::{Fault, sanitizer, setup_remedy};
pub use gradewise_core::{DType, Shape};
pub use index::Index;
pub use launches::threads_of_kernel;
pub use memory::Holder;
pub use ops::{Summary, Validation};
pub use options::{Options, Products};
pub use positions::Positions;
pub use target::Target;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
