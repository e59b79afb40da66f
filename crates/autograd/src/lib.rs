//! Reverse-mode gradients of any order over [`gradewise_kernels`] arrays.
//!
//! A [`Tensor`] is an [`Array`](gradewise_kernels::Array) with a history: what it was computed from, and how gradients
//! flow back. There is no global tape, so graphs on different threads never meet; dropping the last tensor of a graph
//! frees it. Backward rules are themselves written on tensors, hence [`BackwardOptions::create_graph`] gives second and
//! higher derivatives; fused operators run their own kernels for the first order and are re-expressed in primitives
//! when a graph of the gradient is asked for (see [`Function`]).
//!
//! ```
//! use gradewise_autograd::Tensor;
//! use gradewise_kernels::Device;
//!
//! let x = Tensor::from_slice(&[1.0f64, 2.0, 3.0], [3], &Device::Cpu)?.requires_grad();
//! let loss = x.square()?.sum_all()?;
//! let grads = loss.backward()?;
//! assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), gradewise_autograd::Error>(())
//! ```
#![forbid(unsafe_code)]

mod autocast;
pub mod backend;
mod checkpoint;
pub mod clifford;
pub mod custom;
mod engine;
mod error;
mod footprint;
mod function;
mod gradcheck;
mod gradients;
mod mode;
pub mod observe;
mod operation;
mod ops;
pub mod recipe;
mod tensor;
pub mod trace;

pub use autocast::{Policy, Rule, autocast, autocast_with, current_policy, without_autocast};
pub use checkpoint::checkpoint;
pub use engine::{BackwardOptions, grad};
pub use error::{Error, Result};
pub use footprint::{Footprint, OperationMemory, footprint};
pub use function::{BackwardContext, Function};
pub use gradcheck::{Deviation, GradcheckOptions, GradcheckReport, gradcheck, gradgradcheck};
pub use gradients::Gradients;
pub use mode::{evaluation, is_grad_enabled, is_training, no_grad, training, training_stream};
pub use observe::{Anomaly, detect_anomalies};
pub use operation::Attributes;
pub use ops::add_n;
pub use ops::concat;
pub use ops::stack;
pub use tensor::{Tensor, TensorId};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
