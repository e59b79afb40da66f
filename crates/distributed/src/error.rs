//! What keeps processes from working together.

use crate::Failure;
use std::{io, time::Duration};

/// The result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between processes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The launcher set some of its variables and not others.
    #[error(
        "{launcher} set {}, but not {}; start every process through the launcher, or unset the first",
        present.join(", "), missing.join(", ")
    )]
    PartialEnvironment {
        /// The launcher that these variables belong to.
        launcher: &'static str,
        /// Those that are set.
        present: Vec<String>,
        /// Those that are needed with them.
        missing: Vec<String>,
    },
    /// Variables of a launcher that cannot all be true, or one that is no number.
    #[error("the environment contradicts itself: {problem}")]
    Environment {
        /// Which variables, and how.
        problem: String,
    },
    /// Several processes and no secret to know each other by.
    #[error(
        "{world} processes were started without a shared token: set GRADEWISE_TOKEN to the same random text in all of them, as in \
         export GRADEWISE_TOKEN=$(head -c 32 /dev/urandom | base64)"
    )]
    NoToken {
        /// Number of processes.
        world: usize,
    },
    /// Processes that did not come to the rendezvous in time.
    #[error(
        "rendezvous at {address}: {} of {world} processes missing after {} s: rank {}{}",
        missing.len(), timeout.as_secs_f64(), ranks(missing), refusals(refused)
    )]
    Missing {
        /// Where the others waited.
        address: String,
        /// Number of processes.
        world: usize,
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// How long they were waited for.
        timeout: Duration,
        /// Why callers were turned away meanwhile.
        refused: Vec<String>,
    },
    /// Rank 0 could not be reached.
    #[error("rendezvous at {address}: rank 0 did not answer within {} s: {reason}", timeout.as_secs_f64())]
    Unreachable {
        /// Where it was expected.
        address: String,
        /// How long it was tried.
        timeout: Duration,
        /// What the last attempt came to.
        reason: String,
    },
    /// Rank 0 cannot listen.
    #[error("rendezvous: cannot listen at {address}: {source}; choose another MASTER_ADDR or MASTER_PORT")]
    Listen {
        /// Where.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The other side does not know the token, or is no process of this run at all.
    #[error("rendezvous at {address}: {reason}")]
    Refused {
        /// Rank 0's address.
        address: String,
        /// Why.
        reason: String,
    },
    /// A process of the run is gone, or gave up.
    #[error("{0}")]
    Failed(Failure),
    /// A connection broke, or said something that makes no sense.
    #[error("{operation}: {reason}")]
    Connection {
        /// What was being done.
        operation: &'static str,
        /// What happened.
        reason: String,
    },
    /// Processes that should hold the same do not.
    #[error("{what} differ between processes: {difference}")]
    Differ {
        /// What is compared.
        what: &'static str,
        /// Who has what.
        difference: String,
    },
    /// A parameter that has a gradient in some processes or steps and not in others.
    #[error(
        "parameter `{parameter}` {problem}; every process must compute the gradients of the same parameters in every step"
    )]
    Unused {
        /// Its name.
        parameter: String,
        /// Where it lacks one.
        problem: String,
    },
    /// Fewer devices than asked for.
    #[error("{problem}")]
    Devices {
        /// How many are wanted, how many there are, and what to do.
        problem: String,
    },
    /// An argument outside its range.
    #[error("{operation}: `{argument}` is {actual}, expected {expected}")]
    Argument {
        /// The operation that refused.
        operation: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its value.
        actual: String,
        /// What is accepted.
        expected: String,
    },
    /// A process that could not be started or watched.
    #[error("{operation}: {source}")]
    Process {
        /// What was being done.
        operation: String,
        /// The system's reason.
        source: io::Error,
    },
    /// From a device or an array.
    #[error(transparent)]
    Kernels(#[from] gradewise_kernels::Error),
    /// NCCL.
    #[error(transparent)]
    Nccl(#[from] gradewise_ffi::Error),
    /// From training.
    #[error(transparent)]
    Nn(#[from] gradewise_nn::Error),
}

impl Error {
    /// Whether the error lies in what was given (environment, devices) rather than in what happened on the way.
    pub fn is_input(&self) -> bool {
        match self {
            Self::PartialEnvironment { .. }
            | Self::Environment { .. }
            | Self::NoToken { .. }
            | Self::Devices { .. }
            | Self::Argument { .. } => true,
            Self::Nccl(error) => matches!(error, gradewise_ffi::Error::Library { .. }),
            Self::Nn(error) => error.is_input(),
            _ => false,
        }
    }

    pub(crate) fn connection(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Connection { operation, reason: error.to_string() }
    }
}

impl From<Error> for gradewise_nn::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Nn(error) => error,
            error => Self::exchange(error),
        }
    }
}

fn ranks(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn refusals(refused: &[String]) -> String {
    match refused {
        [] => String::new(),
        [one] => format!(" (a caller was refused: {one})"),
        [first, ..] => format!(" ({} callers were refused, the first: {first})", refused.len()),
    }
}
