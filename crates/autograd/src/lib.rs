//! Reverse-mode gradients of any order over [`gradewise_kernels`] arrays.
//!
//! A [`Tensor`] is an [`Array`](gradewise_kernels::Array) with a history: what it was computed from, and how gradients
//! flow back. There is no global tape, so graphs on different threads never meet; dropping the last tensor of a graph
//! frees it. Backward rules are themselves written on tensors, hence [`BackwardOptions::create_graph`] gives second and
//! higher derivatives; fused operators run their own kernels for the first order and are re-expressed in primitives
//! when a graph of the gradient is asked for (see [`Operation`]).
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

// The order of modules:
//
// deviation, difference, error, formula, id, mode, stop
// anomaly, attributes, operand, properties
// policy, tensor
// backend, create, gradients, observe, sample, trace
// composite, detect, footprint, operation
// composed
// any_sample
// entry
// ops
// clifford
// fields, pass
// engine
// checkpoint, gradcheck, jvp, reference
// registry
// custom, names, prepared, program

mod anomaly;
mod any_sample;
mod attributes;
pub mod backend;
mod checkpoint;
pub mod clifford;
mod composed;
mod composite;
mod create;
pub mod custom;
mod detect;
mod deviation;
mod difference;
mod engine;
mod entry;
mod error;
pub mod fields;
mod footprint;
pub mod formula;
mod gradcheck;
mod gradients;
mod id;
mod jvp;
mod mode;
mod names;
pub mod observe;
mod operand;
mod operation;
mod ops;
mod pass;
mod policy;
mod prepared;
pub mod program;
mod properties;
mod reference;
pub mod registry;
mod sample;
mod stop;
mod tensor;
pub mod trace;

pub use anomaly::Anomaly;
pub use any_sample::AnySample;
pub use attributes::{Attributes, number};
pub use checkpoint::checkpoint;
pub use detect::detect_anomalies;
pub use deviation::Deviation;
pub use engine::{BackwardOptions, grad};
pub use error::{Error, Result};
pub use footprint::{Footprint, OperationMemory, footprint};
pub use formula::Formula;
pub use gradcheck::{GradcheckOptions, GradcheckReport, gradcheck, gradgradcheck};
pub use gradients::Gradients;
pub use id::{Pass, TensorId};
pub use jvp::jvp;
pub use mode::{evaluation, is_grad_enabled, is_training, no_grad, training, training_stream};
pub use operand::{Axis, Operand, Presence, Role, SavedArray};
pub use operation::Operation;
pub use ops::{add_n, concat, stack};
pub use policy::{Policy, autocast, autocast_with, current_policy, without_autocast};
pub use prepared::{Kept, Prepared, Twice};
pub use properties::{Cost, Derivative, Forward, Rule, Traffic};
pub use sample::{Input, Sample, Sizes, Values};
pub use stop::stoppable;
pub use tensor::{BackwardContext, Tensor};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
