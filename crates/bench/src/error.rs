//! Errors of the measuring tools.

use std::{io, path::PathBuf};

/// An error of the measuring tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid algebra or an unknown name.
    #[error(transparent)]
    Core(#[from] gradewise_core::Error),
    /// An error of the driver or of cuBLASLt.
    #[error(transparent)]
    Ffi(#[from] gradewise_ffi::Error),
    /// An error of an operator, or a missing device.
    #[error(transparent)]
    Kernels(#[from] gradewise_kernels::Error),
    /// An error of a gradient.
    #[error(transparent)]
    Autograd(#[from] gradewise_autograd::Error),
    /// An error of a layer or a model, or a file that could not be replaced.
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
    /// A file that is not a report.
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
        /// The intended file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A tuning table that cannot be read or written.
    #[error(transparent)]
    Tuning(#[from] gradewise_kernels::tuning::TableError),
    /// A request that cannot be met, with what is possible.
    #[error("{0}")]
    Request(String),
    /// Some cases failed; the others were measured.
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
