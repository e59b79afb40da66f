//! The CUDA driver API, loaded at run time.
//!
//! Nothing here needs CUDA to build or to start: [`Driver::load`] opens the driver's library, each function is looked up when it is first
//! called, and a missing library or function is an [`Error`] that says what was tried.
//!
//! - [`sys`] has the driver API's types, as it defines them.
//! - [`Driver`] has its functions ([`Calls`]), as `unsafe` methods under their own names.
//! - [`Context`], [`Stream`], [`Event`], [`DeviceMemory`], [`HostMemory`], [`PeerAccess`], [`Module`], [`Function`],
//!   [`Graph`], [`GraphExec`] and [`RecordedGraph`] own their driver objects, bind their context where the driver needs one (also when
//!   dropped), and park an error that occurs in `Drop` on the context ([`Context::take_parked`]).
//! - [`Arguments`] are those of a kernel, given to [`Function::launch`] in the order of its parameters.
//! - [`nvrtc`], [`nvml`], [`nvtx`], [`cublaslt`] and [`nccl`] are other libraries, opened in the same way.
//!
//! ```
//! use gradewise_ffi::{Driver, Error};
//!
//! match Driver::load() {
//!     Ok(driver) => println!("{} devices", driver.device_count()?),
//!     Err(Error::Library { tried, .. }) => println!("no driver in {tried:?}"),
//!     Err(error) => println!("a driver that does not start: {error}"),
//! }
//! # Ok::<(), Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The order of modules: each uses those on lines above it; the test `modules` of the workspace looks.
//
// error, image, provider, search, sys
// nvtx, table
// calls, nvrtc
// driver
// device, tensor_maps
// context, nvml
// host, module, pool, stream
// event, memory, nccl
// arguments, cublaslt, cudarc, cust, graph, peer
// function

mod arguments;
mod calls;
mod context;
pub mod cublaslt;
#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;
mod device;
mod driver;
mod error;
mod event;
mod function;
mod graph;
mod host;
mod image;
mod memory;
mod module;
pub mod nccl;
pub mod nvml;
pub mod nvrtc;
pub mod nvtx;
mod peer;
mod pool;
mod provider;
mod search;
mod stream;
pub mod sys;
mod table;
mod tensor_maps;

pub use arguments::Arguments;
pub use calls::Calls;
pub use context::{Context, MemoryInfo};
pub use device::DeviceInfo;
pub use driver::Driver;
pub use error::{Error, Result};
pub use event::Event;
pub use function::{Function, LaunchConfig};
pub use graph::{Graph, GraphExec, Nodes, RecordedGraph, Recording};
pub use host::HostMemory;
pub use image::Image;
pub use memory::DeviceMemory;
pub use module::Module;
pub use nccl::Nccl;
pub use nvml::Nvml;
pub use nvrtc::Nvrtc;
pub use peer::PeerAccess;
pub use pool::Pool;
#[cfg(feature = "cuda-sys")]
pub use provider::CudaSys;
#[cfg(feature = "linked")]
pub use provider::Linked;
pub use provider::{Dynamic, Provider};
pub use stream::Stream;
pub use tensor_maps::{TensorMap, tensor_map};
