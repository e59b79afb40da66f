//! The program `gradewise` in this process.

use crate::errors::Class;
use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the program `gradewise` with the words of a command line, in this process, and returns its exit status.
///
/// Args:
///     words: the arguments, without the name of the program.
///     launcher: the words that start the program in another process, for commands that start more of it.
///
/// Returns:
///     0 done, 1 failed, 2 bad usage or input.
#[cfg(feature = "program")]
#[pyfunction]
pub fn main(py: Python<'_>, words: Vec<OsString>, launcher: Vec<OsString>) -> u8 {
    py.detach(|| {
        let program = gradewise_cli::program().launcher(launcher);
        program.run(std::iter::once("gradewise".into()).chain(words).collect())
    })
}

/// The same in a build without the program.
#[cfg(not(feature = "program"))]
#[pyfunction]
pub fn main(py: Python<'_>, _words: Vec<OsString>, _launcher: Vec<OsString>) -> PyResult<u8> {
    let message = "this build of gradewise has the operators alone; build it with the feature `program`";
    Err(Class::Other.exception(py, message))
}

/// TOML, such as the configuration of a run, as JSON.
///
/// Raises:
///     ArgumentError: the text is not TOML.
#[pyfunction]
pub fn toml_to_json(py: Python<'_>, text: &str) -> PyResult<String> {
    let refuse = |error: String| Class::Argument.exception(py, &error);
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| refuse(error.to_string()))?;
    serde_json::to_string(&table).map_err(|error| refuse(error.to_string()))
}
