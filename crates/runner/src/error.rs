//! Errors of the program and their exit codes.

use crate::config::ConfigError;
use std::path::PathBuf;

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Arguments that contradict each other or the files they name.
    #[error("{0}")]
    Usage(String),
    /// An error of data, files, layers or training.
    #[error(transparent)]
    Nn(Box<gradewise_nn::Error>),
    /// An error of arrays or devices.
    #[error(transparent)]
    Kernels(#[from] gradewise_kernels::Error),
    /// An error of a run with several processes, one for each device.
    #[error(transparent)]
    Distributed(Box<gradewise_distributed::Error>),
    /// Memory ran out.
    #[error("{source}\n{advice}")]
    OutOfMemory {
        /// The failed allocation.
        source: Box<Error>,
        /// The remedies, with their settings.
        advice: String,
    },
    /// A file could not be written.
    #[error("write {}: {reason}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A run that ended early, with advice.
    #[error("{source}\n{next}")]
    Stopped {
        /// Why.
        source: Box<Error>,
        /// Which files are kept, and how to continue.
        next: String,
    },
    /// Weights whose predictions are not finite. The data are not the cause: they were checked on reading.
    #[error(
        "diverged: {measured}: {weights} give no finite predictions; the data are not at fault\ntrain again with a lower \
         train.lr or with train.clip_norm=1; runtime.detect_anomaly=true names the operation that first gives no finite number"
    )]
    Diverged {
        /// What was measured, such as `the test MSE is NaN`.
        measured: String,
        /// The weights: their file, or their step.
        weights: String,
    },
    /// The user stopped the work.
    #[error("{0}")]
    Interrupted(String),
    /// The command completed, but a check failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// 2 for bad usage or input, which the user can correct; 1 for all other failures.
    pub fn exit_code(&self) -> u8 {
        if self.is_input() { 2 } else { 1 }
    }

    fn is_input(&self) -> bool {
        match self {
            Self::Config(_) | Self::Usage(_) => true,
            Self::Nn(error) => error.is_input(),
            Self::Kernels(error) => is_kernels_input(error),
            Self::Distributed(error) => error.is_input(),
            Self::Stopped { source, .. } => source.is_input(),
            Self::OutOfMemory { .. }
            | Self::Output { .. }
            | Self::Diverged { .. }
            | Self::Interrupted(_)
            | Self::Failed(_) => false,
        }
    }
}

impl Error {
    /// Whether memory for arrays ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Stopped { source, .. } => source.is_out_of_memory(),
            Self::Kernels(error) => error.is_out_of_memory(),
            Self::Nn(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// Whether a requested device, dtype or algebra is not available.
fn is_kernels_input(error: &gradewise_kernels::Error) -> bool {
    use gradewise_core::Error as Core;
    use gradewise_kernels::Error as Kernels;
    match error {
        Kernels::NoBackend { .. }
        | Kernels::InvalidDevice { .. }
        | Kernels::NoSuchDevice { .. }
        | Kernels::UnsupportedTarget { .. }
        | Kernels::UnsupportedDType { .. }
        | Kernels::UnsupportedDevice { .. } => true,
        Kernels::Cuda { source, .. } => is_absent(source),
        Kernels::Core(error) => matches!(
            error,
            Core::InvalidDType { .. } | Core::InvalidSignature { .. } | Core::TooManyGenerators { .. }
        ),
        _ => false,
    }
}

/// Whether there is no usable driver, or no such device.
fn is_absent(error: &gradewise_ffi::Error) -> bool {
    use gradewise_ffi::{Error, sys::CUresult};
    match error {
        Error::Library { .. } | Error::DriverTooOld { .. } => true,
        error => matches!(error.code(), Some(CUresult::ERROR_NO_DEVICE | CUresult::ERROR_INVALID_DEVICE)),
    }
}

impl From<gradewise_nn::Error> for Error {
    fn from(error: gradewise_nn::Error) -> Self {
        Self::Nn(Box::new(error))
    }
}

impl From<gradewise_autograd::Error> for Error {
    fn from(error: gradewise_autograd::Error) -> Self {
        gradewise_nn::Error::from(error).into()
    }
}

impl From<gradewise_distributed::Error> for Error {
    fn from(error: gradewise_distributed::Error) -> Self {
        Self::Distributed(Box::new(error))
    }
}

impl From<gradewise_core::Error> for Error {
    fn from(error: gradewise_core::Error) -> Self {
        Self::Kernels(error.into())
    }
}
