//! The fused operators of gradewise as custom operations of [candle](https://docs.rs/candle-core): tensors of candle in,
//! tensors of candle out, and gradients by [`backward`](candle_core::Tensor::backward).
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use gradewise_candle::Fused;
//! use gradewise_core::{Algebra, Signature};
//!
//! // In three dimensions: e1 times e2 is the plane e12. Features are [blades, batch, features].
//! let algebra = Algebra::new(Signature::new(3, 0, 0))?;
//! let product = Fused::geometric_product(&algebra)?;
//! let e1 = Var::new(&[0f64, 1., 0., 0., 0., 0., 0., 0.], &Device::Cpu)?;
//! let e2 = Tensor::new(&[0f64, 0., 1., 0., 0., 0., 0., 0.], &Device::Cpu)?;
//! let (x, y) = (e1.reshape((8, 1, 1))?, e2.reshape((8, 1, 1))?);
//! let plane = product.apply(&[&x, &y])?;
//! assert_eq!(plane.flatten_all()?.to_vec1::<f64>()?, [0., 0., 0., 0., 1., 0., 0., 0.]);
//!
//! // d(e12 component)/dx: only the e1 component of x times e2 is there.
//! let gradients = plane.get(4)?.sum_all()?.backward()?;
//! let gradient = gradients.get(&e1).expect("the product depends on it");
//! assert_eq!(gradient.to_vec1::<f64>()?, [0., 1., 0., 0., 0., 0., 0., 0.]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which operators
//! All of the registry of `gradewise-autograd`, by name and attributes ([`Fused::new`]); those that an equivariant network
//! needs have constructors. Their definitions, with shapes and sources, are at the functions of the same names in
//! `gradewise_autograd::clifford`.
//!
//! # What is copied
//! - Inputs are read where candle keeps them, in whatever layout; an operator copies a layout that its kernel cannot read.
//! - On the CPU results and gradients are computed into the `Vec` that becomes candle's storage.
//! - candle's custom operations have at most three inputs. Of an operator with more, all but the first two, which are its
//!   small parameters, are joined into one tensor at every call.
//!
//! # CUDA
//! The feature `cuda` reads tensors on a GPU where candle has them, in candle's stream, and computes results into candle's
//! memory; `tests/cuda.rs` compares bits, losses, order of work and memory on a GPU. candle links CUDA's toolkit, and nvcc compiles
//! the kernels of both. candle's dependency `cudarc` takes the version of CUDA from the toolkit, or from `CUDARC_CUDA_VERSION`.
//!
//! # Gradients
//! Of the first order. candle cuts the graph of a backward pass by itself (`CANDLE_GRAD_DO_NOT_DETACH`), and a second
//! derivative through these operators is missing rather than wrong: their gradients are tensors without history. Use
//! `gradewise_autograd` for those.

/// The examples of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod call;
mod error;
mod fused;
#[cfg(feature = "cuda")]
mod gpu;
mod host;
mod place;
mod target;

pub use error::Error;
pub use fused::Fused;
