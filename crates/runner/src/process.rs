//! The command line of this process, for commands that start more processes of the program.

use crate::error::Result;
use std::{ffi::OsString, path::PathBuf, sync::OnceLock};

/// The command line of a process.
#[derive(Clone, Debug)]
struct Started {
    /// The launcher's words that start the program; if empty, the executable.
    launcher: Vec<OsString>,
    /// The arguments after the name of the program.
    words: Vec<OsString>,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Sets the result of [`command`]; later calls have no effect.
pub(crate) fn set(launcher: &[OsString], words: &[OsString]) {
    let started =
        Started { launcher: launcher.to_owned(), words: words.get(1..).unwrap_or_default().to_owned() };
    let _ = STARTED.set(started);
}

/// The executable and the arguments that start this program again with the same command line: those of
/// [`Program::run`](crate::Program::run) behind [`Program::launcher`](crate::Program::launcher), or those of this process without a
/// program.
///
/// # Errors
/// The executable cannot be found.
pub fn command() -> Result<(PathBuf, Vec<OsString>)> {
    let words = match STARTED.get() {
        Some(Started { words, .. }) => words.clone(),
        None => std::env::args_os().skip(1).collect(),
    };
    let (executable, before) = program()?;
    Ok((executable, before.into_iter().chain(words).collect()))
}

/// The executable that starts this program, and the arguments that come before those of a command.
///
/// # Errors
/// The executable cannot be found.
pub fn program() -> Result<(PathBuf, Vec<OsString>)> {
    let failed =
        |source| gradewise_distributed::Error::Process { operation: "find this program".to_owned(), source };
    let launcher = STARTED.get().map_or(&[][..], |started| &started.launcher);
    Ok(match launcher {
        [] => (std::env::current_exe().map_err(failed)?, Vec::new()),
        [executable, before @ ..] => (executable.into(), before.to_vec()),
    })
}
