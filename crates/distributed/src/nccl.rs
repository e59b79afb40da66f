//! Arrays of GPUs, by NCCL.

use crate::{Communicator, Error, Group, Pending, Result};
use gradewise_ffi::nccl::{self, Options, ncclUniqueId};
use gradewise_kernels::{Array, Collectives, CudaDevice};
use std::sync::Arc;

/// Variables by which NCCL is told to add in one way only. Which way it would choose otherwise follows from sizes and machine, not
/// from timing, but may be another one with another version or machine.
pub const DETERMINISTIC: [(&str, &str); 2] = [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")];

/// Moves arrays between the devices of the processes of a [`Group`].
///
/// When a process fails, what others wait for on their devices is aborted, so that they go on to notice it.
pub struct Nccl {
    group: Arc<Group>,
    collectives: Arc<Collectives>,
    version: (u32, u32, u32),
}

impl Nccl {
    /// Joins the devices of all processes; returns when all are there.
    ///
    /// # Errors
    /// No NCCL, with the places where it was looked for; an old one; another one at another process; devices that cannot reach
    /// each other.
    pub fn new(group: &Arc<Group>, device: &CudaDevice) -> Result<Self> {
        let library = nccl::Nccl::load();
        // Told to all before anybody waits for the library.
        let version = library.as_ref().map_err(ToString::to_string).and_then(|library| {
            let version = library.version().map_err(|error| error.to_string())?;
            Ok::<_, String>(version)
        });
        let all: Vec<Result<(u32, u32, u32), String>> = group.all_gather_values(&version)?;
        let library = library?;
        for (rank, other) in all.iter().enumerate() {
            match other {
                Ok(other) if Ok(*other) == version => {}
                other => {
                    let text = |version: &Result<_, String>| match version {
                        Ok((major, minor, patch)) => format!("NCCL {major}.{minor}.{patch}"),
                        Err(error) => error.clone(),
                    };
                    let difference = format!(
                        "{} at rank {}, {} at rank {rank}",
                        text(&version),
                        group.rank(),
                        text(other)
                    );
                    return Err(Error::Differ { what: "libraries", difference });
                }
            }
        }
        let own = if group.rank() == 0 { library.unique_id()?.internal.to_vec() } else { Vec::new() };
        let told = group.broadcast(&own)?;
        let internal = told.as_slice().try_into().map_err(|_| Error::Connection {
            operation: "join the devices",
            reason: "rank 0 gave no name for the group".to_owned(),
        })?;
        let options = Options { timeout: group.timeout(), blocking: false };
        let joined = Collectives::new(
            device,
            &library,
            ncclUniqueId { internal },
            group.rank(),
            group.world(),
            options,
        );
        let collectives =
            Arc::new(joined.map_err(|error| group.failure().map_or(Error::Kernels(error), Error::Failed))?);
        let aborted = Arc::downgrade(&collectives);
        group.on_failure(move |_| {
            if let Some(collectives) = aborted.upgrade() {
                collectives.abort();
            }
        });
        let version = version.unwrap_or_default();
        Ok(Self { group: Arc::clone(group), collectives, version })
    }

    fn explain(&self, error: gradewise_kernels::Error) -> Error {
        self.group.explain(Error::Kernels(error))
    }
}

impl Communicator for Nccl {
    fn name(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("NCCL {major}.{minor}.{patch}")
    }

    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn world(&self) -> usize {
        self.group.world()
    }

    fn all_reduce(&self, values: Array) -> Result<Pending> {
        let in_flight = self.collectives.all_reduce(values).map_err(|error| self.explain(error))?;
        Ok(Pending::new(move || Ok(in_flight.wait()?)))
    }

    fn broadcast(&self, values: Array) -> Result<Array> {
        let in_flight = self.collectives.broadcast(values).map_err(|error| self.explain(error))?;
        Ok(in_flight.wait()?)
    }

    /// An abort leaves sums unfinished, and the group learns of the failure before it aborts.
    fn check(&self) -> Result<()> {
        self.group.check()?;
        self.collectives.check().map_err(|error| self.explain(error))
    }
}
