//! Data-parallel training over several devices and hosts.
//!
//! One process computes on one device. [`Launch`] understands what launchers (`torchrun`, `mpirun`, `srun`) tell a process,
//! [`Supervisor`] starts the processes of one host; [`Group`] connects them, over TCP with a shared secret, and watches who is
//! alive; a [`Communicator`] sums arrays over all of them: [`Nccl`] those of GPUs, [`Tcp`] those of the host. [`ShardedSampler`] divides
//! batches, and [`DataParallel`] makes the steps of a [`Trainer`](gradewise_nn::train::Trainer) those of one process with the whole
//! batch.
//!
//! ```no_run
//! use gradewise_distributed::{DataParallel, Group, Launch, Tcp};
//! use std::sync::Arc;
//! # fn parameters() -> Vec<(String, gradewise_nn::Parameter)> { Vec::new() }
//! # struct Trainer; impl Trainer { fn set_exchange(&self, _: Arc<DataParallel>) {} }
//! # let trainer = Trainer;
//!
//! if let Some(launch) = Launch::from_env()? {
//!     let group = Arc::new(Group::join(&launch)?);
//!     let communicator = Arc::new(Tcp::new(&group)?);
//!     trainer.set_exchange(Arc::new(DataParallel::new(&group, communicator, &parameters())?));
//! }
//! # Ok::<(), gradewise_distributed::Error>(())
//! ```
#![forbid(unsafe_code)]

// The order of modules:
//
// error, host, random
// communicator, launch, local, planner, shards
// rendezvous
// group
// data_parallel, nccl, tcp

mod communicator;
mod data_parallel;
mod error;
mod group;
mod host;
mod launch;
mod local;
mod nccl;
mod planner;
mod random;
mod rendezvous;
mod shards;
mod tcp;

pub use communicator::{Communicator, Pending};
pub use data_parallel::{DataParallel, same_state};
pub use error::{Error, Result};
pub use group::{Failure, Group};
pub use host::host_name;
pub use launch::Launch;
pub use local::{ChildFailure, SUPERVISED, Supervisor, free_port};
pub use nccl::{DETERMINISTIC, Nccl};
pub use planner::{Plan, Request, Wanted};
pub use rendezvous::{handshake::Peer, this_process};
pub use shards::{Shard, ShardedSampler};
pub use tcp::Tcp;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
