//! Errors of writing programs.

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a program cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that C does not take.
    #[error("`{name}` is no name of a C function: letters, digits and _ are, not beginning with a digit")]
    Name {
        /// The name.
        name: String,
    },
    /// Numbers of a type that C does not have.
    #[error("`{operation}` computes in {dtype}, and C has f32 and f64; export with --dtype f32 or f64")]
    Type {
        /// The operation.
        operation: &'static str,
        /// The type.
        dtype: gradewise_core::DType,
    },
    /// Another number of descriptions than the program has inputs or results.
    #[error("{described} {what} are described, and the program has {actual}")]
    Arguments {
        /// Inputs or results.
        what: &'static str,
        /// How many are described.
        described: usize,
        /// How many there are.
        actual: usize,
    },
    /// Constants that could not be read.
    #[error(transparent)]
    Kernel(#[from] gradewise_kernels::Error),
}
