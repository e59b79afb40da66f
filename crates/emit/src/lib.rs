//! Predictions of a fixed size as programs in C and as models of ONNX.
//!
//! [`c_source`] writes a [recorded](gradewise_autograd::program::record) program as one file of C99: a function that reads and writes arrays
//! of its caller, without heap or global state, and needs `math.h` alone. Elementwise operations move into the loops that read their
//! results, arrays between loops share memory, and weights are constants of the file. [`onnx_model`] writes it for batches of any size, in
//! standard operators.
//!
//! ```
//! use gradewise_autograd::{Tensor, program};
//! use gradewise_emit::{Argument, Source, c_source};
//! use gradewise_kernels::Device;
//!
//! let numbers = |values: [f32; 2]| Tensor::from_slice(&values, [2], &Device::Cpu);
//! let weight = numbers([0.5, 2.0])?;
//! let examples = [vec![numbers([1.0, 2.0])?], vec![numbers([3.0, -1.0])?]];
//! let program = program::record(&examples, &[], |x| Ok(vec![x[0].mul(&weight)?.silu()?]))?;
//! let (x, y) = (Argument::new("x", "two numbers"), Argument::new("y", "their gates"));
//! let source = Source { name: "gates", about: &[], inputs: &[x], outputs: &[y] };
//! let text = c_source(&program, &source)?;
//! assert!(text.contains("void gates_predict(const float *x, float *y)"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

// The order of modules:
//
// error, functions, index
// nest
// fuse, memory
// text
// file
// onnx

mod error;
mod file;
mod functions;
mod fuse;
mod index;
mod memory;
mod nest;
mod onnx;
mod text;

pub use error::{Error, Result};
pub use file::{Argument, Source, c_source};
pub use onnx::{is_onnx_model, onnx_model};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
