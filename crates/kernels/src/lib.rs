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
//!
//! # How an operator is called
//!
//! The arguments of a forward and of a backward pass come in this order, and those that an operator does not have are
//! left out: the algebra (or what else the operator is derived from), the operands, the options, what the forward pass
//! kept, the gradient of the output, and which gradients are needed.
//!
//! - `Operands` names the arrays of an operator that has more than two parameters or a part that may be missing. The
//!   crate above uses the same struct for its tensors (`Operands<'_, Tensor>`). A few operands that are always there,
//!   such as `x` and `a`, are arguments of their own. No argument is a tuple: arrays of one type are told apart by name.
//! - `Needs` has a flag for each gradient that can be left out, and `Needs::ALL`.
//! - `Gradients` has a field for each operand, called as the operand is; `None` where it was not needed.
//! - Inside of an operator, `Planes { blades, rows, features }` are the sizes of multivectors, checked once where the
//!   operator is entered. Launchers and CPU kernels take them instead of asking an array again.
//!
//! ```
//! use gradewise_core::{Algebra, Signature};
//! use gradewise_kernels::{Array, DType, Device, ops::clifford::sgp::{self, Needs, Operands, ProductOptions}};
//!
//! let algebra = Algebra::new(Signature::CL3)?;
//! let x = Array::ones([8, 5, 4], DType::F32, &Device::Cpu)?; // [blades, batch, features]
//! let w = Array::ones([4, 20], DType::F32, &Device::Cpu)?; // [features, paths]
//! let (operands, options) = (Operands { x: &x, y: &x, w: &w }, ProductOptions::default());
//! let product = sgp::forward(&algebra, &operands, options)?;
//! let needs = Needs { y: false, ..Needs::ALL };
//! let gradients = sgp::backward(&algebra, &operands, options, &product, &product.output, needs)?;
//! assert_eq!(gradients.w.map(|w| w.shape().clone()), Some([4, 20].into()));
//! assert!(gradients.y.is_none());
//! # Ok::<(), gradewise_kernels::Error>(())
//! ```

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// csrc, error
// runtime
// cpu
// array
// collectives, custom
// ops

mod array;
mod collectives;
mod cpu;
#[allow(dead_code, unused_parens, clippy::manual_div_ceil, reason = "translated; kernels alone use some")]
mod csrc;
pub mod custom;
mod error;
pub mod ops;
mod runtime;

pub use array::{Array, Borrowed, BorrowedIndex, Index, Positions};
pub use collectives::{Collectives, InFlight};
pub use cpu::element::Element;
pub use error::{Error, Result};
pub use gradewise_core::{DType, Shape};
pub use ops::{Summary, Validation, shared_bytes_of_kernel};
pub use runtime::{
    BuildInfo, CapturedGraph, Code, Compute, CudaDevice, Device, DeviceName, Fault, Fusion, Holder,
    MemoryReport, Options, Products, Resources, Target, build_info, code_remedy, debug, external, memory,
    occupancy, sanitizer, setup_remedy, transfers, tuning,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
