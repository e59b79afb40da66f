//! Predictions of a fixed size as programs: what the operations of a computation do, to which memory.
//!
//! [`record`] runs a function twice, on different numbers, and keeps the operations that depend on its inputs, as [`Formula`]s over buffers.
//! Everything else is a constant, parameters and what is computed of them included. A function that does another thing for other numbers
//! (lists of neighbours, branches) is refused.
//!
//! ```
//! use gradewise_autograd::{Tensor, program};
//! use gradewise_kernels::Device;
//!
//! let numbers = |values: [f32; 2]| Tensor::from_slice(&values, [2], &Device::Cpu);
//! let weight = numbers([0.5, 2.0])?;
//! let examples = [vec![numbers([1.0, 2.0])?], vec![numbers([3.0, -1.0])?]];
//! let program = program::record(&examples, &[], |x| Ok(vec![x[0].mul(&weight)?.silu()?]))?;
//! let operations: Vec<&str> = program.steps.iter().map(|step| step.operation).collect();
//! assert_eq!(operations, ["mul", "silu"]);
//! # Ok::<(), gradewise_autograd::Error>(())
//! ```

mod compare;
mod record;

pub use record::record;

use crate::Formula;
use gradewise_core::DType;
use gradewise_kernels::Array;

/// The operations of a computation of fixed size.
#[derive(Clone, Debug)]
pub struct Program {
    /// The memory that steps read and write.
    pub buffers: Vec<Buffer>,
    /// In order.
    pub steps: Vec<Step>,
    /// Where each input is.
    pub inputs: Vec<View>,
    /// Where each result is.
    pub outputs: Vec<View>,
}

/// A piece of memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The type of its elements.
    pub dtype: DType,
    /// Their number.
    pub elements: usize,
    /// What they are.
    pub contents: Contents,
}

/// What is in a buffer.
#[derive(Clone, Debug)]
pub enum Contents {
    /// An input of the program.
    Input(usize),
    /// The same numbers at each run, and the name of the parameter that they are, if they are one.
    Constant(Array, Option<String>),
    /// What steps write.
    Computed,
}

/// Elements of a buffer as an operand: the one at position `p` is `offset + Σ p·stride`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The buffer.
    pub buffer: usize,
    /// The position of the first element.
    pub offset: usize,
    /// The sizes along the axes.
    pub sizes: Vec<usize>,
    /// The distance of neighbours along each axis; 0 along a broadcast axis.
    pub strides: Vec<usize>,
}

/// An operation of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Its name.
    pub operation: &'static str,
    /// What it reads.
    pub inputs: Vec<View>,
    /// What it writes.
    pub output: View,
    /// What it does.
    pub formula: Formula,
}
