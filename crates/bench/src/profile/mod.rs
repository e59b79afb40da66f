//! Profiling of a computation by operation, on any device.
//!
//! A [`Recorder`] observes a thread ([`observe`](gradewise_autograd::observe::observe)); a [`Profile`] sums its recording by operation and
//! compares it with [`Ceilings`](crate::Ceilings); [`trace`] converts it for trace viewers. [`Timers`] time named parts of a program.

mod clock;
mod copies;
mod host;
mod observed;
mod recorder;
mod table;
mod timers;
mod trace;

pub use clock::{Clock, Mark};
pub use copies::CopyRow;
pub use host::ceilings as host_ceilings;
pub use recorder::{Call, Recorder, Recording};
pub use table::{Grouping, OperationRow, Profile, Table};
pub use timers::{NamedTime, Timers};
pub use trace::trace;
