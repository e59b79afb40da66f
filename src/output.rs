//! What the program says. Closing its output early (`| head`) is the reader's right, not an error.

use crate::error::{Error, Result};
use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
};

/// Writes text to the standard output.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Output { path: PathBuf::from("the standard output"), reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Writes a line about the state of the work to the standard error.
pub fn note(text: &str) {
    // There is nowhere left to report that the standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Reports why a command ended.
pub fn error(error: &Error) {
    note(&format!("error: {error}"));
}
