//! The building blocks of gradewise's benches: cases and their floors, a timer over CUDA events, result files, and plots.
//!
//! - [`Case`] is one operator at one size, [`Pass`] the pass that is timed, [`Work`] its minimum bytes and operations.
//! - [`gpu`] runs cases on a CUDA device and measures the device's ceilings in the same run.
//! - [`Report`] is the result file, versioned JSON, which `benches/compare_gpu.py` writes for PyTorch, too.
//! - [`profile`] breaks down the time of a computation by operation, on any device.
//! - [`plots`] draws one report, or a comparison of two, as SVG: heat maps over batch × features, and a roofline.
//!
//! ```
//! use gradewise_bench::{Case, Op, Pass, Work};
//! use gradewise_core::{DType, Signature};
//! use gradewise_kernels::Compute;
//!
//! let case = Case::new(Op::Layer, Signature::CL3, (4096, 512), DType::F32, Compute::Tf32);
//! assert_eq!(case.to_string(), "layer Cl(3,0,0) 4096x512 f32 tf32");
//! let work = Work::of(&case, Pass::Forward)?;
//! assert_eq!(work.matrix_flops, 2 * 8 * 4096 * 512 * 512);
//! # Ok::<(), gradewise_bench::Error>(())
//! ```

mod arguments;
mod case;
mod error;
pub mod gpu;
pub mod plots;
pub mod profile;
mod program;
mod report;
mod table;
mod work;

pub use arguments::{Arguments, Kind, required};
pub use case::{Case, NBODY_HIDDEN, Op, Pass};
pub use error::{Error, Result};
pub use program::run;
pub use report::{Ceilings, Machine, ProductRate, Report, Row, SCHEMA, date};
pub use work::Work;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
