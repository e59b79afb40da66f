//! What can go wrong.

use std::{io, path::PathBuf};

/// An error of the measuring tools.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An algebra that does not exist, a name that nothing has.
    #[error(transparent)]
    Core(#[from] gradewise_core::Error),
    /// The driver, or cuBLASLt.
    #[error(transparent)]
    Ffi(#[from] gradewise_ffi::Error),
    /// An operator, or no device.
    #[error(transparent)]
    Kernels(#[from] gradewise_kernels::Error),
    /// A gradient.
    #[error(transparent)]
    Autograd(#[from] gradewise_autograd::Error),
    /// A layer, a model, or a file that could not be replaced.
    #[error(transparent)]
    Nn(#[from] gradewise_nn::Error),
    /// A file that cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no report.
    #[error("{path} is no report of this program: {reason}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A figure that cannot be drawn.
    #[error("the figure {path} cannot be drawn: {reason}", path = path.display())]
    Figure {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A tuning table that cannot be read or written.
    #[error(transparent)]
    Tuning(#[from] gradewise_kernels::tuning::TableError),
    /// Something asked for that cannot be done, and what can.
    #[error("{0}")]
    Request(String),
    /// Cases that failed, after the others were measured.
    #[error("{failed} of {total} cases failed; the reasons are above")]
    Cases {
        /// How many failed.
        failed: usize,
        /// How many there were.
        total: usize,
    },
}

/// The result of a measuring tool.
pub type Result<T> = std::result::Result<T, Error>;
