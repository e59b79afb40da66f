//! `debug`: another command, in debug mode.

mod drill;

pub use drill::Drill;

use super::doctor;
use crate::{
    cli::{Cli, Command, Debug},
    error::{Error, Result},
    output,
};
use clap::Parser;
use gradewise_kernels::debug;
use std::{ffi::OsString, iter::once};

pub fn run(arguments: &Debug) -> Result<()> {
    if let Some(drill) = arguments.drill {
        debug::set(true);
        return drill.run(&arguments.device);
    }
    let words = once(OsString::from("gradewise")).chain(arguments.command.iter().cloned());
    // Before anything is tested: a command that does not exist is known at once. Its help is printed here, too.
    let parsed = Cli::try_parse_from(words).unwrap_or_else(|error| error.exit());
    if matches!(parsed.command, Command::Debug(_)) {
        return Err(Error::Usage("`debug` runs another command, not itself".to_owned()));
    }
    debug::set(true);
    // Shown here, of all devices, and not again by the command.
    doctor::is_introduced();
    let report = doctor::examine(false);
    output::note(&report.information());
    let failed: Vec<String> =
        report.self_tests().filter(|test| test.is_failed()).map(ToString::to_string).collect();
    for test in report.self_tests() {
        output::note(&test.to_string());
    }
    if !failed.is_empty() {
        return Err(Error::Failed(
            "the initialisation test fails, so the command was not run: gradewise doctor says more"
                .to_owned(),
        ));
    }
    output::note("");
    super::run(parsed.command)
}
